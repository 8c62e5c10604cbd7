"""Who a resource's policy lets in: anybody, unless its conditions say whom."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.policies.reading.cidr import are_open, is_open
from falaj.policies.reading.iam import Condition, Document, Statement

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
