"""IAM policy documents: the grammar, and what trust, resource and boundary documents need.

Source: "Grammar of the IAM JSON policy language" and "IAM and AWS STS quotas" in the IAM user
guide. Only what the service itself refuses is a problem here; whether a policy is wise is for the
policy packs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws.iam_names import misspelt
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map, as_texts
from falaj.sandbox.clouds.kinds import Rule
from falaj.sandbox.clouds.model import Problem
from falaj.wire.documents import is_mapping, is_sequence

_TOP: Final = {"Version", "Id", "Statement"}
_STATEMENT: Final = {
    "Sid", "Effect", "Principal", "NotPrincipal", "Action", "NotAction",
    "Resource", "NotResource", "Condition",
}  # fmt: skip
_VERSIONS: Final = ("2012-10-17", "2008-10-17")
_PRINCIPALS: Final = {"AWS", "Service", "Federated", "CanonicalUser"}
_ACTION: Final = re.compile(r"\*|[a-zA-Z0-9-]+:[a-zA-Z0-9*?]+")
_SID: Final = re.compile(r"[0-9A-Za-z]*")
_RESOURCE: Final = re.compile(r"(arn:.+:.+:.*:.*:.+|\*|.*\$\{.*)", re.DOTALL)
_PLAIN_OPERATORS: Final = {
    "StringEquals", "StringNotEquals", "StringEqualsIgnoreCase", "StringNotEqualsIgnoreCase",
    "StringLike", "StringNotLike", "NumericEquals", "NumericNotEquals", "NumericLessThan",
    "NumericLessThanEquals", "NumericGreaterThan", "NumericGreaterThanEquals", "DateEquals",
    "DateNotEquals", "DateLessThan", "DateLessThanEquals", "DateGreaterThan",
    "DateGreaterThanEquals", "Bool", "BinaryEquals", "IpAddress", "NotIpAddress", "ArnEquals",
    "ArnLike", "ArnNotEquals", "ArnNotLike",
}  # fmt: skip
_OPERATORS: Final = {name.lower() for name in _PLAIN_OPERATORS}

IDENTITY: Final = "identity"
"""Attached to a user, group or role: no Principal, Resource required."""
TRUST: Final = "trust"
"""Who may take a role: Principal required, no Resource, only sts actions."""
RESOURCE: Final = "resource"
"""Attached to a bucket, key, queue …: Principal required."""
ENDPOINT: Final = "endpoint"
"""Of a VPC endpoint: as a resource's."""


def policy(path: str, kind: str, *, longest: int = 0, sids: bool = True) -> Rule:
    """The text must be a policy document of that kind.

    Args:
        path: where the text stands.
        kind: `IDENTITY`, `TRUST`, `RESOURCE` or `ENDPOINT`.
        longest: how many characters the service takes, white space not counted; 0 for no limit.
        sids: whether IAM's rule for Sid holds (letters and digits only; not for S3, KMS …).
    """

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str):
                for reason in complaints(value, kind, longest, sids=sids):
                    yield Problem(where, reason)

    return rule


def json_text(path: str) -> Rule:
    """The text must be JSON."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        for where, value in inputs.each(path):
            if isinstance(value, str):
                _, reason = _parsed(value)
                if reason:
                    yield Problem(where, reason)

    return rule


def statements(text: object) -> list[Mapping[str, Any]]:
    """The statements of a document; none for anything that isn't one."""
    if not isinstance(text, str):
        return []
    document, _ = _parsed(text)
    found = as_map(document).get("Statement")
    single = as_map(found)
    return [single] if single else [as_map(item) for item in as_list(found)]


def complaints(text: str, kind: str, longest: int = 0, *, sids: bool = True) -> Iterator[str]:
    """Why the service would refuse the document."""
    document, reason = _parsed(text)
    if reason:
        yield reason
        return
    if not is_mapping(document):
        yield "a policy document is a JSON object with Version and Statement"
        return
    size = len(re.sub(r"\s", "", text))
    if longest and size > longest:
        yield f"has {size} characters without white space; allowed: {longest}"
    yield from _unknown_keys("", document, _TOP)
    if "Version" in document and document["Version"] not in _VERSIONS:
        yield f"Version is {document['Version']!r}; allowed: {', '.join(_VERSIONS)}"
    found = document.get("Statement")
    if not found or not (is_mapping(found) or is_sequence(found)):
        yield "Statement is missing or empty; give at least one"
        return
    listed = found if is_sequence(found) else [found]
    seen: set[str] = set()
    for index, item in enumerate(listed):
        where = f"Statement[{index}]"
        if not is_mapping(item):
            yield f"{where} is no JSON object"
            continue
        yield from _statement(where, item, kind, sids)
        sid = item.get("Sid")
        if isinstance(sid, str) and sid:
            if sid in seen:
                yield f"{where}.Sid {sid!r} is used twice; give each statement its own"
            seen.add(sid)


def _statement(where: str, item: Mapping[str, Any], kind: str, sids: bool) -> Iterator[str]:
    yield from _unknown_keys(f"{where}.", item, _STATEMENT)
    if item.get("Effect") not in ("Allow", "Deny"):
        yield f"{where}.Effect is {item.get('Effect')!r}; allowed: Allow, Deny"
    sid = item.get("Sid")
    if sid is not None and (
        not isinstance(sid, str) or (sids and kind == IDENTITY and not _SID.fullmatch(sid))
    ):
        yield f"{where}.Sid {sid!r} isn't allowed; allowed: letters A-Z, a-z and digits"
    yield from _one_of_two(where, item, "Action", "NotAction", required=True)
    for key in ("Action", "NotAction"):
        for action in as_texts(item.get(key)):
            if _ACTION.fullmatch(action) is None:
                yield f"{where}.{key} {action!r} is no action; give one such as s3:GetObject"
            elif kind == TRUST and action != "*" and not action.lower().startswith("sts:"):
                yield f"{where}.{key} {action!r} isn't allowed in a trust policy; allowed: sts:…"
    if kind == TRUST:
        for key in ("Resource", "NotResource"):
            if key in item:
                yield f"{where}.{key} isn't allowed in a trust policy; remove it"
    else:
        required = kind == IDENTITY
        yield from _one_of_two(where, item, "Resource", "NotResource", required=required)
        if kind == IDENTITY:
            yield from _resources(where, item)
    yield from _principal(where, item, kind)
    for element, reason in misspelt(item):
        yield f"{where}.{element} {reason}"
    yield from _conditions(where, item.get("Condition"))


def _resources(where: str, item: Mapping[str, Any]) -> Iterator[str]:
    for key in ("Resource", "NotResource"):
        for resource in as_texts(item.get(key)):
            if _RESOURCE.fullmatch(resource) is None:
                yield f"{where}.{key} {resource!r} is neither an ARN nor '*'"


def _principal(where: str, item: Mapping[str, Any], kind: str) -> Iterator[str]:
    if kind == IDENTITY:
        for key in ("Principal", "NotPrincipal"):
            if key in item:
                yield f"{where}.{key} isn't allowed in a policy of an identity; remove it"
        return
    yield from _one_of_two(where, item, "Principal", "NotPrincipal", required=True)
    for key in ("Principal", "NotPrincipal"):
        value = item.get(key)
        if value is None or value == "*":
            continue
        if not is_mapping(value):
            yield f"{where}.{key} {value!r} isn't allowed; give '*' or an object such as " + (
                '{"AWS": "arn:aws:iam::…:root"}'
            )
            continue
        for name in value:
            if name not in _PRINCIPALS:
                allowed = ", ".join(sorted(_PRINCIPALS))
                yield f"{where}.{key}.{name} isn't allowed; allowed: {allowed}"


def _conditions(where: str, conditions: object) -> Iterator[str]:
    if conditions is None:
        return
    if not is_mapping(conditions):
        yield f"{where}.Condition is no JSON object"
        return
    for operator, block in conditions.items():
        plain = re.sub(r"^for(allvalues|anyvalue):", "", operator.lower())
        plain = plain.removesuffix("ifexists") if plain != "null" else plain
        if plain not in _OPERATORS and plain != "null":
            yield f"{where}.Condition.{operator} is no condition operator; such as StringEquals"
        elif not is_mapping(block) or not block:
            yield f"{where}.Condition.{operator} names no condition key"


def _one_of_two(
    where: str, item: Mapping[str, Any], one: str, other: str, *, required: bool
) -> Iterator[str]:
    if one in item and other in item:
        yield f"{where} has both {one} and {other}; give one of them"
    elif one not in item and other not in item:
        if required:
            yield f"{where} has neither {one} nor {other}; give one of them"
        return
    key = one if one in item else other
    if key not in {"Principal", "NotPrincipal"} and not as_texts(item[key]):
        yield f"{where}.{key} is {item[key]!r}; give a text or a list of texts"


def _unknown_keys(where: str, item: Mapping[str, Any], allowed: set[str]) -> Iterator[str]:
    for key in item:
        if key not in allowed:
            listed = ", ".join(sorted(allowed))
            yield f"{where}{key} isn't an element of a policy; allowed: {listed}"


def _parsed(text: str) -> tuple[object, str]:
    try:
        return json.loads(text), ""
    except (ValueError, RecursionError) as error:
        return None, f"isn't JSON: {str(error)[:120]}"
