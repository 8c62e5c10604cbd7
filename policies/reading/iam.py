"""Policies of AWS, read into statements, and the principals that they name."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from falaj.policies.model import ABSENT, Path, format_path, holds_unknown, is_unknown, items, text
from falaj.policies.reading.addresses import are_open, is_open
from falaj.policies.reading.encoded import LONGEST
from falaj.wire.documents import is_mapping

# IAM policy documents, in every form in which programs give them.
#
# A document is a JSON text or the mapping that it stands for; statements, actions, resources and
# principals are one or a list; names of elements are compared without letter case, as are actions
# (https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html).


@dataclass(frozen=True)
class Condition:
    """One test of a condition block."""

    operator: str
    """In lower case, with its set operator: ``forallvalues:stringlike``."""
    key: str
    """In lower case: ``aws:sourcearn``."""
    values: tuple[str, ...]
    is_unknown: bool
    """Whether some value can't be seen."""


@dataclass(frozen=True)
class Statement:
    """One statement. Actions are in lower case."""

    path: str
    """Where it stands; the property itself where the document is a text."""
    sid: str
    is_allow: bool
    actions: tuple[str, ...]
    not_actions: tuple[str, ...]
    resources: tuple[str, ...]
    not_resources: tuple[str, ...]
    principals: tuple[tuple[str, str], ...]
    """Kind (``AWS``, ``Service``, ``Federated``, ``CanonicalUser``, ``*``) and who."""
    not_principals: tuple[tuple[str, str], ...]
    conditions: tuple[Condition, ...]
    unknown: frozenset[str]
    """Elements with something in them that can't be seen, in lower case: ``action`` …; ``*`` for
    the whole statement."""

    def can_see(self, *elements: str) -> bool:
        """Whether nothing of these elements is hidden."""
        return "*" not in self.unknown and self.unknown.isdisjoint(elements)

    def grants(self, action: str) -> bool:
        """Whether an action, such as ``iam:PassRole``, is among those that it names."""
        if self.not_actions:
            return not any(covers(each, action.lower()) for each in self.not_actions)
        return any(covers(each, action.lower()) for each in self.actions)

    @property
    def is_on_everything(self) -> bool:
        """Whether it is about all resources: ``*``, ``arn:aws:*:*:*:*`` and the like."""
        return bool(self.not_resources) or any(is_any_resource(each) for each in self.resources)

    @property
    def label(self) -> str:
        """How to name it in a sentence."""
        return f"statement {self.sid!r}" if self.sid else "a statement"


@dataclass(frozen=True)
class Document:
    """A policy document; without statements where there is none to be seen."""

    statements: tuple[Statement, ...]
    hidden: str = ""
    """Path of what can't be seen as a whole (the document, or its statements), else empty."""
    reason: str = ""
    """Why, as "it …"."""

    @property
    def allowing(self) -> Iterator[Statement]:
        """Statements that allow, or that nobody can see to deny."""
        return (each for each in self.statements if each.is_allow)

    @property
    def denying(self) -> Iterator[Statement]:
        """Statements that deny."""
        return (each for each in self.statements if not each.is_allow)


def read(value: object, path: str | Path = ()) -> Document:
    """Read the document that a property holds.

    Args:
        value: the property's value: text, mapping, unknown or anything else.
        path: of the property, for the statements' own paths.

    An empty text, and what is no document at all, has no statements; a text that isn't JSON is
    `hidden`, since nobody can say what it grants.
    """
    at = (path,) if isinstance(path, str) else tuple(path)
    if is_unknown(value):
        return Document((), _spell(at), "can't be known yet")
    return _of_text(value, at) if isinstance(value, str) else _of(value, at, in_text=False)


@lru_cache(maxsize=512)
def _of_text(value: str, at: Path) -> Document:
    """Several rules read the same document, one after the other."""
    if not value.strip():
        return Document(())
    try:
        parsed = json.loads(value) if len(value) <= LONGEST else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, Mapping | list):
        return Document((), _spell(at), "is no JSON document")
    return _of(parsed, at, in_text=True)


def _of(value: Any, at: Path, *, in_text: bool) -> Document:
    if not is_mapping(value):
        return Document(())
    given = _element(_elements(value), "statement")
    if is_unknown(given):
        return Document((), _spell((*at, "Statement")), "can't be known yet")
    one = is_mapping(given)
    statements: list[Statement] = []
    for index, each in enumerate(items(given)):
        here = at if in_text else (*at, "Statement") if one else (*at, "Statement", index)
        if is_mapping(each) or is_unknown(each):
            statements.append(_statement(each, _spell(here)))
    return Document(tuple(statements))


def _spell(path: Path) -> str:
    head = str(path[0]) if path else ""
    rest = format_path(path[1:])
    return f"{head}{'.' if head and rest and rest[0] != '[' else ''}{rest}"


def _elements(value: Mapping[Any, Any]) -> dict[str, Any]:
    """What a mapping says, by its keys in small letters; of two such keys the first."""
    found: dict[str, Any] = {}
    for key, each in value.items():
        if each is not None:
            found.setdefault(str(key).lower(), each)
    return found


def _element(elements: Mapping[str, Any], name: str) -> Any:
    """An element by its name, or by the plural that SDKs' own types have."""
    return elements.get(name, elements.get(f"{name}s", ABSENT))


def _statement(given: Any, path: str) -> Statement:
    hidden: set[str] = set()
    if not is_mapping(given):
        given, hidden = {}, {"*"}
    elements = _elements(given)
    named = {
        name: _element(elements, name)
        for name in (
            "action", "notaction", "resource", "notresource", "principal", "notprincipal",
            "condition", "effect",
        )
    }  # fmt: skip
    hidden |= {name for name, each in named.items() if holds_unknown(each)}
    return Statement(
        path=path,
        sid=text(elements.get("sid")),
        # What nobody can see may allow.
        is_allow=is_unknown(named["effect"])
        or text(named["effect"]).lower() == "allow"
        or "*" in hidden,
        actions=tuple(each.lower() for each in _texts(named["action"])),
        not_actions=tuple(each.lower() for each in _texts(named["notaction"])),
        resources=_texts(named["resource"]),
        not_resources=_texts(named["notresource"]),
        principals=tuple(_principals(named["principal"])),
        not_principals=tuple(_principals(named["notprincipal"])),
        conditions=tuple(_conditions(named["condition"])),
        unknown=frozenset(hidden),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text(each) for each in items(value) if text(each))


def _principals(value: object) -> Iterator[tuple[str, str]]:
    if is_mapping(value):
        for kind, who in value.items():
            yield from ((str(kind), each) for each in _texts(who))
    else:
        yield from (("*", each) for each in _texts(value))


def _conditions(value: object) -> Iterator[Condition]:
    for block in items(value):
        if not is_mapping(block):
            continue
        for operator, tests in block.items():
            if not is_mapping(tests):
                continue
            for key, given in tests.items():
                yield Condition(
                    str(operator).lower(),
                    str(key).lower(),
                    tuple(_plain_text(each) for each in items(given) if not is_unknown(each)),
                    holds_unknown(given),
                )


def _plain_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()


@lru_cache(maxsize=8192)
def _pattern(glob: str) -> re.Pattern[str]:
    # A run of stars says what one says; without this, matching could take very long.
    given = re.sub(r"\*+", "*", glob)
    return re.compile(re.escape(given).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def covers(pattern: str, name: str) -> bool:
    """Whether a pattern with ``*`` and ``?`` takes in a name; letter case counts."""
    return _pattern(pattern).fullmatch(name) is not None


def is_any_resource(resource: str) -> bool:
    """Whether a resource is every resource: only stars in all places that tell one from another.

    ``*``, ``arn:aws:*:*:*:*``, ``arn:*``. An ARN that names a service isn't.
    """
    parts = resource.split(":")
    if parts[0] == "arn":
        parts = parts[2:] if len(parts) > 2 else parts[1:]
    if not parts or "*" not in parts[0] or "*" not in parts[-1]:
        return False
    return all(re.fullmatch(r"[*?/]*", each) for each in parts)


# Who a resource's policy lets in: anybody, unless its conditions say whom.

#: Keys that pin a caller, or the way by which it comes, to somebody known
#: (https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html,
#: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html).
_PINNING: Final = frozenset((
    "aws:principalorgid", "aws:principalorgpaths", "aws:principalaccount", "aws:principalarn",
    "aws:principalservicename", "aws:principalservicenameslist", "aws:sourcearn",
    "aws:sourceaccount", "aws:sourceowner", "aws:sourceorgid", "aws:sourceorgpaths",
    "aws:sourcevpc", "aws:sourcevpce", "aws:sourcevpcarn", "aws:sourceip", "aws:vpcsourceip",
    "aws:userid", "aws:username", "aws:federatedprovider", "kms:calleraccount",
    "s3:dataaccesspointaccount", "s3:dataaccesspointarn", "aws:vpceaccount", "aws:vpceorgid",
    "aws:vpceorgpaths", "elasticfilesystem:accesspointarn", "lambda:functionarn",
    "lambda:sourcefunctionarn", "sns:endpoint", "aws:ec2instancesourcevpc",
))  # fmt: skip
#: Keys whose "true" says the same.
_PINNING_FLAGS: Final = frozenset((
    "elasticfilesystem:accessedviamounttarget", "aws:principalisawsservice",
))  # fmt: skip
#: Tags of principals pin only where their values are chosen; any value of one's own does.
_PINNING_PREFIXES: Final = ("aws:principaltag/", "saml:", "cognito-identity.amazonaws.com:")
_POSITIVE: Final = frozenset((
    "stringequals", "stringequalsignorecase", "stringlike", "arnequals", "arnlike", "ipaddress",
))  # fmt: skip
#: Whom keys name by an account's number, an organisation or a network, as these begin.
_BEGINNINGS: Final = re.compile(r"(?:o|r|ou|vpc|vpce)-")
_ACCOUNT: Final = re.compile(r"\d{12}|arn:aws[\w-]*:iam::\d{12}:root")


def is_anybody(who: str) -> bool:
    """Whether a principal is everybody: ``*``, or an ARN whose account is any."""
    if who.strip("*") == "" and who:
        return True
    parts = who.split(":")
    return len(parts) > 4 and parts[2] in {"iam", "sts"} and "*" in parts[4]


def is_account(who: str) -> bool:
    """Whether a principal is a whole account."""
    return _ACCOUNT.fullmatch(who) is not None


def account_of(who: str) -> str:
    """The account of a principal (an ARN or an account's number), empty where it names none."""
    found = re.search(r"(?:^|:)(\d{12})(?::|$)", who)
    return found[1] if found else ""


def lets_anybody(statement: Statement) -> bool:
    """Whether a statement's principals are everybody, its conditions left aside."""
    if statement.not_principals and not statement.principals:
        return True
    return any(is_anybody(who) for _, who in statement.principals)


def is_pinning(condition: Condition, *, among: bool = False) -> bool | None:
    """Whether a condition keeps strangers out; None where its values can't be seen.

    Args:
        condition: of a statement.
        among: whether the statement's principals are of one account already, so that a name in
            any account is that account's.

    Tests that a request without the key meets (``…IfExists``, ``ForAllValues:``) don't, nor
    negative ones, nor values that are everybody.
    """
    operator = condition.operator.removeprefix("foranyvalue:")
    if operator == "bool" and condition.key in _PINNING_FLAGS:
        return None if condition.is_unknown else condition.values == ("true",)
    if operator not in _POSITIVE:
        return False
    if condition.key not in _PINNING and not condition.key.startswith(_PINNING_PREFIXES):
        return False
    wide = condition.key.endswith("sourceip") and are_open(condition.values)
    if wide or any(_is_any_value(condition.key, each, among) for each in condition.values):
        return False
    if condition.is_unknown:
        return None
    return bool(condition.values)


def _is_any_value(key: str, value: str, among: bool) -> bool:
    if key.endswith("sourceip"):
        return is_open(value)
    if value.startswith("arn:"):
        # An ARN names somebody by its account; buckets have none, and one name for the world.
        parts = value.split(":", 5)
        if not among and parts[2:3] != ["s3"] and "*" in "".join(parts[4:5]):
            return True
        return all(not each.strip("*?/") for each in parts[4:6])
    if key.endswith("account"):
        return "*" in value or "?" in value
    named = value.partition("/")[0] if key.endswith("orgpaths") else value
    return not _BEGINNINGS.sub("", named, count=1).strip("*?")


def open_statements(document: Document) -> Iterator[tuple[Statement, bool]]:
    """Statements that let anybody in, with whether that is certain; not so where parts of the
    statement can't be seen."""
    for statement in document.allowing:
        if not statement.can_see("principal", "notprincipal"):
            if not _is_pinned(statement):
                yield statement, lets_anybody(statement) and statement.can_see("condition")
        elif lets_anybody(statement):
            pinned = [is_pinning(each) for each in statement.conditions]
            if True not in pinned:
                yield statement, None not in pinned and statement.can_see("condition")


def _is_pinned(statement: Statement) -> bool:
    return any(is_pinning(each) for each in statement.conditions)
