"""What encrypts data at rest: the form of the tables, whose key is named, and what is demanded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    get,
    indeterminate,
    is_false,
    is_true,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown

# Whose key a property names: a customer's, the service's own, or one that nobody can see.

State = Literal["customer key", "service key", "none", "unknown"]
KeyState = Literal["customer key", "service key", "unknown", "absent"]

#: Types that are a customer's key, or stand for one.
KEY_TYPES: Final = frozenset({
    "aws:kms/key:Key",
    "aws:kms/alias:Alias",
    "aws:kms/externalKey:ExternalKey",
    "aws:kms/replicaKey:ReplicaKey",
    "aws:kms/replicaExternalKey:ReplicaExternalKey",
    "azure-native:keyvault:Key",
    "azure-native:keyvault:ManagedHsm",
    "azure-native:keyvault:MHSMKey",
    "azure-native:compute:DiskEncryptionSet",
})  # fmt: skip
#: What services call keys of their own, in lower case: never a customer's.
_SERVICE_KEYS: Final = frozenset({
    "aes256", "sse-s3", "sse_s3", "default", "none", "aws_owned_kms_key", "aws_owned_key",
    "s3_managed_key",
})  # fmt: skip
#: AWS keeps every alias below ``aws/`` for keys that it manages; some services take the alias
#: without its ``alias/``. https://docs.aws.amazon.com/kms/latest/developerguide/kms-alias.html
_AWS_MANAGED: Final = re.compile(r"(^|alias)/?aws/", re.IGNORECASE)


def is_service_key(name: str) -> bool:
    """Whether a key's name is one that a service keeps for its own keys."""
    return name.lower() in _SERVICE_KEYS or bool(_AWS_MANAGED.search(name))


def read_key(
    resource: Resource, path: str, value: Any, context: Context, by: Collection[str] = KEY_TYPES
) -> tuple[KeyState, str]:
    """Whose key a property names, and a clause that says how that is known.

    An unknown value is a customer's key where it was made from one of the same stack.

    Args:
        resource: whose property.
        path: of the property, as findings name it.
        value: what it holds.
        context: the whole stack, once it is known.
        by: types whose resources are a customer's key, or stand for one.
    """
    if isinstance(value, Unknown):
        if any(each.kind in by for each in context.referred(resource, path)):
            return "customer key", f"{path} is made from a resource of this stack"
        return "unknown", f"{path} {value.reason}, and is made from no key of this stack"
    named = text(value)
    if not named:
        return "absent", ""
    # A vault's keys may have any name.
    if resource.package.lower() == "aws" and is_service_key(named):
        return "service key", f"{path} is {named!r}, a key that the service manages"
    return "customer key", f"{path} names a key"


def first(block: Any, path: str) -> Any:
    """The first value at a path, through lists of any length; ABSENT where there is none."""
    return next((value for _, value in select(block, path)), ABSENT)


def where(block: Any, path: str, at: str = "") -> str:
    """A path as findings name it, with the index of every list on the way; empty for none."""
    if not path:
        return ""
    found = next((spelled for spelled, _ in select(block, path)), path)
    return f"{at}.{found}" if at and found else at or found


# What each storing type says about encryption at rest: one table's entries, read into parts.
#
# An entry (`Stores`) names the paths of a type's settings and what holds without them. Reading it
# gives a `Part` for each place where the resource keeps data. Types whose answer needs more than
# an entry (a companion resource, a policy) have a reader of their own with the same result.

__all__ = ["KEY_TYPES", "Part", "Reader", "State", "Stores", "read_key", "readers", "where"]

Reader = Callable[[Resource, Context], Iterator["Part"]]


@dataclass(frozen=True)
class Part:
    """Data that a resource keeps, and what encrypts it."""

    state: State
    path: str
    """Where the key is given, or belongs."""
    switch: str
    """Where encryption is turned on, or the key's path where the key alone turns it on."""
    why: str
    """A clause that says how the state is known."""
    key: str = ""
    """The key as the resource names it; empty where it names none."""
    surely: bool = False
    """Of an unknown state: whether it is encrypted for certain, though nobody knows with what."""
    given: bool = True
    """Whether the resource itself says so; False where a default does."""
    takes_key: bool = True
    """Whether a customer's key could be named at all."""
    elsewhere: bool = False
    """Whether a companion in the stack says so, which is judged by itself."""


@dataclass(frozen=True)
class Stores:
    """A storing type. Paths are relative to each of its `parts`, else to its properties.

    Attributes:
        type: in its one spelling.
        key: path of the customer's key, or several of which one will do; none where the service
            takes no customer's key, and then only encryption itself can be demanded.
        enabled: path of a switch for encryption; none where it is always on, or where the key
            alone turns it on.
        default: what holds where neither key, switch nor mode is given; with ``none`` and neither
            switch nor mode, the key alone turns encryption on.
        mode: path of a text or a switch that names the kind of encryption.
        modes: for each such text, in lower case, what it means; ``customer key`` where the key
            decides, or the mode itself where there is no path of a key. Other texts count as the
            default.
        exact: whether a key counts only where the mode says ``customer key`` in so many words.
        beside: path of what must be given as well for a key to count, such as its vault.
        key_wins: whether a key turns encryption on, whatever the switch says.
        parts: path of the blocks that each keep data of their own; absent blocks keep none.
        when: path of what must be there, and be neither false nor empty, for data to be kept.
        only: a path and the texts, in lower case, of which it must have one for data to be kept.
        copies: paths that name a source whose encryption is taken on where nothing is set.
        by: types whose resources are a customer's key, or stand for one.
        note: the clause for the default, where it needs to say more.
    """

    type: str
    key: str | tuple[str, ...] = ""
    enabled: str = ""
    default: State = "service key"
    mode: str = ""
    modes: Mapping[str, State] = field(default_factory=dict[str, State])
    exact: bool = False
    beside: str = ""
    key_wins: bool = False
    parts: str = ""
    when: str = ""
    only: tuple[str, tuple[str, ...]] = ("", ())
    copies: tuple[str, ...] = ()
    by: Collection[str] = KEY_TYPES
    note: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The paths of which one must name a customer's key."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def takes_key(self) -> bool:
        """Whether the service takes a customer's key."""
        return any(self.keys) or "customer key" in self.modes.values()

    @property
    def can_be_plain(self) -> bool:
        """Whether data may be kept without encryption."""
        return bool(self.enabled) or self.default == "none" or "none" in self.modes.values()

    def read(self, resource: Resource, context: Context) -> Iterator[Part]:
        """What encrypts the resource's data; nothing where it keeps none. Never raises."""
        for part in self._parts(resource, context):
            yield part if self.takes_key else replace(part, takes_key=False)

    def _parts(self, resource: Resource, context: Context) -> Iterator[Part]:
        if not self.parts:
            yield from self._block(resource, resource.properties, "", context)
            return
        for path, block in select(resource.properties, self.parts):
            if isinstance(block, Unknown):
                yield Part("unknown", path, path, f"{path} {block.reason}")
            else:
                yield from self._block(resource, block, path, context)

    def _block(self, resource: Resource, block: Any, at: str, context: Context) -> Iterator[Part]:
        if not self._keeps(block):
            return
        path, key, known, why = self._key(resource, block, at, context)
        switch = where(block, self.enabled or self.mode, at) or path
        path = path or switch
        state, given = self._given(block)
        if self.key_wins and known != "absent":
            state, given = "service key", ""
        if not self.enabled and not self.mode and self.default == "none" and known != "absent":
            # The key alone turns encryption on.
            state = "service key"
        if state == "unknown":
            yield Part("unknown", path, switch, given)
        elif state == "service key" and not given and known != "absent":
            # Where the key alone turns encryption on, an unknown key may turn out to be none.
            surely = self.default != "none" or bool(self.enabled or self.mode)
            yield Part(known, path, switch, why, key, surely)
        elif given:
            yield Part(state, path if state == "none" else switch, switch, given)
        else:
            yield from self._default(resource, block, at, context, (state, path, switch))

    def _default(
        self,
        resource: Resource,
        block: Any,
        at: str,
        context: Context,
        part: tuple[State, str, str],
    ) -> Iterator[Part]:
        """What holds where the block says nothing: `part` is state, path and switch."""
        state, path, switch = part
        for each in self.copies:
            if get(block, each) is not ABSENT:
                source = where(block, each, at)
                if not any(one.urn != resource.urn for one in context.referred(resource, source)):
                    why = f"it takes on the encryption of {source}, which isn't of this stack"
                    yield Part("unknown", path, switch, why, given=False)
                return
        lacks = (switch if state == "none" else path).rpartition(".")[2]
        means = {"none": "nothing is encrypted", "service key": "the key is the service's own"}
        why = self.note or f"{lacks or 'a key'} isn't given, and by default {means.get(state, '')}"
        yield Part(state, path, switch, why, given=False)

    def _keeps(self, block: Any) -> bool:
        """Whether the block keeps data at all; what can't be seen may."""
        if self.when:
            wanted = get(block, self.when)
            if wanted is ABSENT or is_false(wanted) or wanted in ({}, [], ""):
                return False
        path, texts = self.only
        if path:
            value = get(block, path)
            return isinstance(value, Unknown) or text(value).lower() in texts
        return True

    def _given(self, block: Any) -> tuple[State, str]:
        """What switch and mode say, with the clause for it where they say so in their own words;
        ``service key`` without one where the key decides."""
        if self.enabled:
            state, given = self._switched(get(block, self.enabled))
            if state != "service key" or not self.mode:
                return state, given
        if self.mode:
            return self._named(get(block, self.mode))
        return self.default, ""

    def _switched(self, value: Any) -> tuple[State, str]:
        if isinstance(value, Unknown):
            return "unknown", f"{self.enabled} {value.reason}"
        if is_false(value):
            return "none", f"{self.enabled} is false, so nothing is encrypted"
        return ("none" if self.default == "none" and not is_true(value) else "service key"), ""

    def _named(self, value: Any) -> tuple[State, str]:
        if isinstance(value, Unknown):
            return "unknown", f"{self.mode} {value.reason}"
        mode = _mode(value)
        if mode not in self.modes:
            return "service key" if self.enabled else self.default, ""
        meant = self.modes[mode]
        if meant == "customer key":
            return ("service key", "") if any(self.keys) else (meant, f"{self.mode} is {mode}")
        means = "nothing is encrypted" if meant == "none" else "the key is the service's own"
        return meant, f"{self.mode} is {mode or 'not given'}, so {means}"

    def _key(
        self, resource: Resource, block: Any, at: str, context: Context
    ) -> tuple[str, str, KeyState, str]:
        """Path, text and state of the first key that is given, and the clause for it."""
        found: tuple[str, str, KeyState, str] = where(block, self.keys[0], at), "", "absent", ""
        if self.beside and first(block, self.beside) in (ABSENT, ""):
            if first(block, self.keys[0]) is not ABSENT:
                found = where(block, self.beside, at), "", "absent", ""
            return found
        if self.exact and self.modes.get(_mode(get(block, self.mode))) != "customer key":
            return found
        for each in self.keys if any(self.keys) else ():
            path, value = where(block, each, at), first(block, each)
            state, why = read_key(resource, path, value, context, self.by)
            if state in {"customer key", "service key"}:
                return path, text(value), state, why
            if state == "unknown":
                found = path, "", state, why
        return found


def _mode(value: object) -> str:
    """A mode in lower case; switches are ``true`` and ``false``."""
    return str(value).lower() if isinstance(value, bool) else text(value).lower()


def readers(table: Iterable[Stores]) -> dict[str, tuple[Reader, ...]]:
    """Readers by type; a type may have several entries: each keeps data of its own."""
    found: dict[str, tuple[Reader, ...]] = {}
    for each in table:
        found[each.type] = (*found.get(each.type, ()), each.read)
    return found


# What the pack demands of data at rest, for every cloud, given readers of its types.
#
# The demand by class of data: from ``internal`` up, a customer's own key; ``public`` data needs
# encryption with any key, the service's own included. The class is the resource's tag
# ``falaj:data-class``, else the settings'; a class that nobody knows counts as more than public.

Readers = Mapping[str, tuple[Reader, ...]]


def parts_of(resource: Resource, context: Context, readers: Readers) -> Iterator[Part]:
    """Everything that a resource keeps, and what encrypts it."""
    for reader in readers.get(resource.kind, ()):
        yield from reader(resource, context)


def merged(*some: Readers) -> Readers:
    """Readers of several tables as one; a type may stand in more than one."""
    found: dict[str, tuple[Reader, ...]] = {}
    for each in some:
        for kind, of_kind in each.items():
            found[kind] = (*found.get(kind, ()), *of_kind)
    return found


def demands_customer_key(resource: Resource, context: Context) -> bool:
    """Whether the class of the resource's data calls for a customer's own key."""
    return context.data_class(resource).strip().lower() != "public"


def unencrypted(parts: Iterable[Part]) -> Iterator[Finding]:
    """A finding for each part that isn't encrypted at all, or where that can't be seen."""
    for each in parts:
        if each.elsewhere:
            continue
        if each.state == "none":
            yield violation(each.switch, f"{each.why}; data at rest must be encrypted")
        elif each.state == "unknown" and not each.surely:
            yield indeterminate(each.switch, each.why)


def without_customer_key(
    resource: Resource, context: Context, parts: Iterable[Part]
) -> Iterator[Finding]:
    """A finding for each part that no customer's key encrypts, where the class demands one."""
    if not demands_customer_key(resource, context):
        return
    for each in parts:
        if each.elsewhere or not each.takes_key:
            continue
        if each.state in {"none", "service key"}:
            data_class = context.data_class(resource)
            yield violation(
                each.path, f"{each.why}; {data_class} data needs a customer-managed key"
            )
        elif each.state == "unknown":
            yield indeterminate(each.path, each.why)
