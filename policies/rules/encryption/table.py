"""What each storing type says about encryption at rest: one table's entries, read into parts.

An entry (`Stores`) names the paths of a type's settings and what holds without them. Reading it
gives a `Part` for each place where the resource keeps data. Types whose answer needs more than an
entry (a companion resource, a policy) have a reader of their own with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from policies.model import (
    ABSENT,
    Resource,
    View,
    get,
    is_false,
    is_true,
    is_unknown,
    select,
    text,
)
from policies.model.values import Unknown

State = Literal["customer key", "service key", "none", "unknown"]
Reader = Callable[[Resource, View], Iterator["Part"]]

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
_SERVICE_KEYS: Final = frozenset(
    ("aes256", "sse-s3", "sse_s3", "default", "none", "aws_owned_kms_key", "aws_owned_key")
)


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
        mode: path of a text that names the kind of encryption.
        modes: for each such text, in lower case, what it means; ``customer key`` where the key
            decides. Other texts count as the default.
        parts: path of the blocks that each keep data of their own; absent blocks keep none.
        when: path of what must be there, and not be false, for data to be kept at all.
        copies: paths that name a source whose encryption is taken on where nothing is set.
        source: document of the default.
    """

    type: str
    key: str | tuple[str, ...] = ""
    enabled: str = ""
    default: State = "service key"
    mode: str = ""
    modes: Mapping[str, State] = field(default_factory=dict[str, State])
    parts: str = ""
    when: str = ""
    copies: tuple[str, ...] = ()
    source: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """The paths of which one must name a customer's key."""
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def takes_key(self) -> bool:
        """Whether the service takes a customer's key."""
        return any(self.keys)

    @property
    def can_be_plain(self) -> bool:
        """Whether data may be kept without encryption."""
        return bool(self.enabled) or self.default == "none" or "none" in self.modes.values()

    def read(self, resource: Resource, view: View) -> Iterator[Part]:
        """What encrypts the resource's data; nothing where it keeps none. Never raises."""
        if not self.parts:
            yield from self._read(resource, resource.properties, "", view)
            return
        for path, block in select(resource.properties, self.parts):
            if isinstance(block, Unknown):
                yield Part("unknown", path, path, f"{path} {block.reason}")
            else:
                yield from self._read(resource, block, path, view)

    def _read(self, resource: Resource, block: Any, at: str, view: View) -> Iterator[Part]:
        if self.when:
            wanted = get(block, self.when)
            if wanted is ABSENT or is_false(wanted):
                return
        place, key, known, why = self._key(resource, block, at, view)
        switch = where(block, self.enabled or self.mode, at) or place
        state, said = self._given(block)
        if state == "unknown":
            yield Part("unknown", place, switch, said)
        elif state == "none":
            if said or not (copied := self._copied(resource, block, at, view)):
                said = said or f"{switch} isn't given, and by default nothing is encrypted"
                yield Part("none", place, switch, said)
            elif copied != "judged":
                yield Part("unknown", place, switch, copied)
        elif known != "absent":
            # Where the key alone turns encryption on, an unknown key may turn out to be none.
            surely = self.default != "none" or bool(self.enabled or self.mode)
            yield Part(known, place, switch, why, key, surely)
        elif state == "customer key":
            yield Part("customer key", place, switch, "the service demands a customer's key")
        elif not (copied := self._copied(resource, block, at, view)):
            plain = (
                f"{place or resource.kind} isn't given, and the service's own key is the default"
            )
            yield Part("service key", switch if said else place, switch, said or plain)
        elif copied != "judged":
            yield Part("unknown", place, switch, copied)

    def _given(self, block: Any) -> tuple[State, str]:
        """What switch and mode say, with the clause for it where they say so in their own words;
        ``service key`` where the key decides."""
        if self.enabled:
            return self._switched(get(block, self.enabled))
        if self.mode:
            return self._named(get(block, self.mode))
        if self.default == "none" and not self._names_key(block):
            # The key alone turns encryption on.
            return "none", ""
        return "customer key" if self.default == "customer key" else "service key", ""

    def _switched(self, value: Any) -> tuple[State, str]:
        if isinstance(value, Unknown):
            return "unknown", f"{self.enabled} {value.reason}"
        if is_false(value):
            return "none", f"{self.enabled} is false, so nothing is encrypted"
        return ("none" if self.default == "none" and not is_true(value) else "service key"), ""

    def _named(self, value: Any) -> tuple[State, str]:
        if isinstance(value, Unknown):
            return "unknown", f"{self.mode} {value.reason}"
        meant = self.modes.get(text(value).lower(), self.default)
        if meant == "customer key":
            return "service key", ""
        plain = {"none": "nothing is encrypted", "service key": "the key is the service's own"}
        said = f"{self.mode} is {text(value)!r}, so {plain.get(meant, meant)}"
        return meant, said if text(value).lower() in self.modes else ""

    def _names_key(self, block: Any) -> bool:
        return any(
            is_unknown(value) or text(value) for value in (get(block, key) for key in self.keys)
        )

    def _key(
        self, resource: Resource, block: Any, at: str, view: View
    ) -> tuple[str, str, State | Literal["absent"], str]:
        """Path, text and state of the first key that is given, and the clause for it."""
        if not self.takes_key:
            return "", "", "absent", ""
        if self.mode and self.modes.get(text(get(block, self.mode)).lower()) == "service key":
            return where(block, self.keys[0], at), "", "absent", ""
        unsure: tuple[str, str, State, str] | None = None
        for each in self.keys:
            path, value = where(block, each, at), get(block, each)
            state, why = read_key(resource, path, value, view)
            if state in {"customer key", "service key"}:
                return path, text(value), state, why
            if state == "unknown":
                unsure = path, "", state, why
        return unsure or (where(block, self.keys[0], at), "", "absent", "")

    def _copied(self, resource: Resource, block: Any, at: str, view: View) -> str:
        """Empty where nothing is copied; ``judged`` where the source is judged; else why not."""
        for each in self.copies:
            if get(block, each) is ABSENT:
                continue
            path = where(block, each, at)
            if any(one.urn != resource.urn for one in view.referred(resource, path)):
                return "judged"
            return f"it takes on the encryption of {path}, which isn't of this stack"
        return ""


def where(block: Any, path: str, at: str = "") -> str:
    """A path as findings name it, with the index of every list on the way; empty for none."""
    if not path:
        return ""
    found = next((spelled for spelled, _ in select(block, path)), path)
    return f"{at}.{found}" if at and found else at or found


def read_key(
    resource: Resource, path: str, value: Any, view: View
) -> tuple[State | Literal["absent"], str]:
    """Whose key a property names, and a clause that says how that is known.

    An unknown value is a customer's key where it was made from a key of the same stack.
    """
    if isinstance(value, Unknown):
        if any(each.kind in KEY_TYPES for each in view.referred(resource, path)):
            return "customer key", f"{path} is made from a key of this stack"
        return "unknown", f"{path} {value.reason}, and it is made from no key of this stack"
    named = text(value)
    if not named:
        return "absent", ""
    if "alias/aws/" in named.lower() or named.lower() in _SERVICE_KEYS:
        return "service key", f"{path} is {named!r}: a key that the service manages"
    return "customer key", f"{path} names a key"


def readers(table: Iterable[Stores]) -> dict[str, tuple[Reader, ...]]:
    """Readers by type; a type may have several entries: each keeps data of its own."""
    found: dict[str, tuple[Reader, ...]] = {}
    for each in table:
        found[each.type] = (*found.get(each.type, ()), each.read)
    return found
