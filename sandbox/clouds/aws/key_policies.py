"""What the policy of a KMS key lets a caller do, as far as that is known.

A key's policy alone decides: IAM's policies count only where it hands them the decision by naming
the account, and no service gets at a key that its policy doesn't let it.
Sources: https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-overview.html and
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html

What isn't known is neither true nor false: a request is refused only where it surely is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws.documents import statements
from falaj.sandbox.clouds.aws.naming import ACCOUNT
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map, as_texts
from falaj.sandbox.clouds.kinds import Crosscheck, Rule
from falaj.sandbox.clouds.model import Made, Problem, World

KEY_POLICY: Final = "aws:kms/keyPolicy:KeyPolicy"

Truth: TypeAlias = bool | None
"""None where it can't be told."""


@dataclass(frozen=True)
class Caller:
    """Who asks for the use of a key, and what KMS knows of the request."""

    name: str
    """For people."""
    arn: str = ""
    """The principal's; empty for somebody of the account whose IAM policies allow it."""
    services: tuple[str, ...] = ()
    """The hosts by which a policy may name a service that asks on its own."""
    context: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Condition keys with their values; None for one that is surely absent. Any other is
    unknown."""


def deployer(context: Mapping[str, str | None]) -> Caller:
    """Somebody of the account: who deploys isn't known, and has what IAM policies it takes."""
    return Caller("the account's principals", context={"kms:CallerAccount": ACCOUNT, **context})


def allows(document: object, action: str, caller: Caller) -> Truth:
    """Whether a key's policy allows an action; None where that depends on something unknown."""
    found = statements(document)
    if not found:
        return None
    denied = _any(_applies(each, action, caller) for each in found if each.get("Effect") == "Deny")
    allowed = _any(
        _applies(each, action, caller) for each in found if each.get("Effect") == "Allow"
    )
    if denied is True or allowed is False:
        return False
    return True if allowed is True and denied is False else None


def policy_of(key: Made, world: World) -> object:
    """The policy that holds: the key's own, or what a KeyPolicy set afterwards.

    None where nothing is known of it, as with the one that KMS makes where none is given.
    """
    for made in world.all(KEY_POLICY):
        if made.outputs.get("keyId") in (key.id, key.outputs.get("arn")):
            return made.outputs.get("policy")
    return key.outputs.get("policy")


def keys_at(resource: Resource, path: str) -> Iterator[tuple[str, Made]]:
    """The keys that a resource names by their ARN, id or alias, with the path of each."""
    for where, value in resource.each(path):
        if not isinstance(value, str) or not value:
            continue
        wanted = {value, *_behind_alias(value, resource.world)}
        for key in resource.world.all(t.KEY):
            if {key.id, key.outputs.get("arn")} & wanted:
                yield where, key


@dataclass(frozen=True)
class Need:
    """What a service asks of a key."""

    actions: tuple[str, ...]
    hint: str
    """What it says where one of them is refused, and what to change."""


def usable(path: str, by: Callable[[Resource], Caller], need: Need) -> Crosscheck:
    """The policy of the key that stands at a path lets a caller do what is needed."""

    def check(resource: Resource) -> Iterator[Problem]:
        caller = by(resource)
        for where, key in keys_at(resource, path):
            yield from unusable(where, key, resource.world, caller, need)

    return check


def unusable(where: str, key: Made, world: World, caller: Caller, need: Need) -> Iterator[Problem]:
    """The problem that a key's policy surely keeps a caller from something that is needed."""
    text = policy_of(key, world)
    refused = [each for each in need.actions if allows(text, each, caller) is False]
    if refused:
        yield Problem(
            where,
            f"the policy of the key {key.id} doesn't let {caller.name} use it, as it refuses "
            f"{', '.join(refused)}; {need.hint}",
        )


def not_locked_out(path: str, *, unless: str) -> Rule:
    """A key's policy leaves somebody of the account who may change it, unless a switch is on.

    KMS refuses one that keeps the caller from that; who it is isn't known here, only the account:
    https://docs.aws.amazon.com/kms/latest/APIReference/API_PutKeyPolicy.html
    """

    def rule(inputs: Inputs) -> Iterator[Problem]:
        if inputs.at(unless) not in (None, False):
            return
        for where, value in inputs.each(path):
            if allows(value, "kms:PutKeyPolicy", deployer({})) is False:
                yield Problem(
                    where,
                    "the new key policy will not allow you to update the key policy in the "
                    "future: it locks everybody out; allow kms:PutKeyPolicy to a principal of "
                    f"account {ACCOUNT}, such as the role that deploys",
                )

    return rule


def _behind_alias(value: str, world: World) -> Iterator[str]:
    for made in world.all(t.KEY_ALIAS):
        if value in (made.outputs.get("name"), made.outputs.get("arn")):
            yield str(made.outputs.get("targetKeyArn"))


# A statement applies where principal, action and conditions all do. The resource of a key's policy
# is the key itself, whatever is written there.


def _applies(statement: Mapping[str, Any], action: str, caller: Caller) -> Truth:
    return _all(
        (
            _names_action(statement, action),
            _names_principal(statement, caller),
            _conditions_hold(as_map(statement.get("Condition")), caller.context),
        )
    )


def _names_action(statement: Mapping[str, Any], action: str) -> Truth:
    key = "Action" if "Action" in statement else "NotAction"
    named = any(_like(action.lower(), each.lower()) for each in as_texts(statement.get(key)))
    return named if key == "Action" else not named


def _names_principal(statement: Mapping[str, Any], caller: Caller) -> Truth:
    if "Principal" not in statement:
        return None
    principal = statement["Principal"]
    if principal == "*":
        return True
    named = as_map(principal)
    people = as_texts(named.get("AWS"))
    if caller.services:
        is_named = not set(caller.services).isdisjoint(as_texts(named.get("Service")))
        # Whether everybody of AWS is services as well, IAM's pages don't say.
        return is_named or (None if "*" in people else False)
    if caller.arn:
        # Naming the account leaves it to IAM's policies, which no service-linked role's are.
        return not {"*", caller.arn}.isdisjoint(people)
    if any(each == "*" or _is_account(each) for each in people):
        return True
    return None if any(f":{ACCOUNT}:" in each for each in people) else False


def _is_account(principal: str) -> bool:
    return re.fullmatch(rf"(arn:[^:]+:iam::)?{ACCOUNT}(:root)?", principal) is not None


def _conditions_hold(conditions: Mapping[str, Any], context: Mapping[str, str | None]) -> Truth:
    known = {key.lower(): value for key, value in context.items()}
    return _all(
        _condition(operator.lower(), _written(wanted), key.lower(), known)
        for operator, block in conditions.items()
        for key, wanted in as_map(block).items()
    )


#: Operators without their negation, and how a value is compared with one that is allowed.
_EQUAL: Final = {"stringequals", "arnequals", "arnlike", "stringlike", "bool"}
_CASELESS: Final = "stringequalsignorecase"
_LIKE: Final = {"arnequals", "arnlike", "stringlike"}


def _condition(
    operator: str, wanted: list[str], key: str, known: Mapping[str, str | None]
) -> Truth:
    if key not in known:
        return None
    value = known[key]
    if operator == "null":
        return (value is None) == (wanted[:1] == ["true"])
    plain = operator.removesuffix("ifexists")
    positive = plain.replace("not", "", 1)
    if positive not in (*_EQUAL, _CASELESS) or any("${" in each for each in wanted):
        return None
    negated = positive != plain
    if value is None:
        return negated or plain != operator
    fold = positive in (_CASELESS, "bool")
    given = value.lower() if fold else value
    found = any(
        _like(given, each) if positive in _LIKE else given == (each.lower() if fold else each)
        for each in wanted
    )
    return found != negated


def _like(value: str, pattern: str) -> bool:
    # IAM knows '*' and '?' only; brackets are letters to it.
    return fnmatchcase(value, pattern.replace("[", "[[]"))


def _written(value: object) -> list[str]:
    """What a condition compares with, as texts: truths and numbers may stand without quotes."""
    if isinstance(value, bool):
        return [str(value).lower()]
    return [value] if isinstance(value, str) else [str(each) for each in as_list(value)]


def _all(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return False if False in found else None if None in found else True


def _any(truths: Iterable[Truth]) -> Truth:
    found = list(truths)
    return True if True in found else None if None in found else False
