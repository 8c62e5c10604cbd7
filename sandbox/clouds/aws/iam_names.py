"""Names that IAM takes as they are and that mean nothing when they are misspelt.

IAM checks the form of an action, and not whether there is one: a role whose policy allows
``s3:GetObjects`` is made, and fails when it is used. Managed policies and services that roles
trust are looked up by IAM itself. New names come every week, so that a name which resembles none
that is known here is let through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from falaj.components.nearest import nearest
from falaj.sandbox.clouds.aws.kinds import load_table
from falaj.sandbox.clouds.inputs import as_texts
from falaj.wire.documents import is_mapping

_NEAR: Final = 0.8
"""How much a name must resemble one that is known to count as a misspelling of it."""
_NEAR_SERVICE: Final = 0.66
"""Of services' short names, of which few come and many are guessed."""
_AWS_POLICY: Final = re.compile(r"arn:aws[a-z-]*:iam::aws:policy/(.+)")

#: Calls of S3's interface that are allowed by an action of another name:
#: docs.aws.amazon.com/AmazonS3/latest/userguide/using-with-s3-policy-actions.html
_S3_CALLS: Final[Mapping[str, str]] = {
    "listobjects": "ListBucket",
    "listobjectsv2": "ListBucket",
    "headbucket": "ListBucket",
    "headobject": "GetObject",
    "copyobject": "GetObject and PutObject",
    "createmultipartupload": "PutObject",
    "uploadpart": "PutObject",
    "completemultipartupload": "PutObject",
    "listbuckets": "ListAllMyBuckets",
    "getbucketencryption": "GetEncryptionConfiguration",
    "putbucketencryption": "PutEncryptionConfiguration",
    "deleteobjects": "DeleteObject",
}


def _data() -> Mapping[str, Any]:
    return load_table("iam")


@cache
def _actions(service: str) -> Mapping[str, str]:
    """The service's actions as they are written, by their lower-case names: case is no matter."""
    written = str(_data()["actions"].get(service, "")).split()
    return {name.lower(): name for name in written}


def unknown_action(action: str) -> str:
    """Why the action, or pattern of actions, allows nothing; empty when it may allow something."""
    service, _, name = action.partition(":")
    if not name or "*" in service or "?" in service:
        return ""
    known = _actions(service.lower())
    if not known:
        near = nearest(service.lower(), _data()["actions"], alike=_NEAR_SERVICE)
        return f"is of no service of AWS; did you mean {near[0]!r}?" if near else ""
    lower = name.lower()
    is_pattern = "*" in lower or "?" in lower
    # A bracket is a pattern to this function and not to IAM; in an action's name it can't be.
    if lower in known or (is_pattern and any(fnmatchcase(each, lower) for each in known)):
        return ""
    if is_pattern:
        return f"matches no action of {service}"
    if service.lower() == "s3" and lower in _S3_CALLS:
        return f"is a call and no action; the action that allows it is s3:{_S3_CALLS[lower]}"
    near = nearest(lower, known, alike=_NEAR)
    return f"is no action; did you mean {service}:{known[near[0]]}?" if near else ""


def unknown_policy(arn: str) -> str:
    """Why there is no such policy of AWS's own; empty when there may be one."""
    found = _AWS_POLICY.fullmatch(arn)
    if found is None or found[1] in _managed():
        return ""
    plain = found[1].rpartition("/")[2]
    same = [each for each in _managed() if each.rpartition("/")[2] == plain]
    near = same or nearest(found[1], _managed(), alike=_NEAR)
    return f"is no policy of AWS; did you mean policy/{near[0]}?" if near else ""


@cache
def _managed() -> frozenset[str]:
    return frozenset(_data()["managed_policies"])


def unknown_service(name: str) -> str:
    """Why no service goes by the name; empty when one may."""
    known: list[str] = _data()["services"]
    # Most principals have the short name of the service's actions.
    if name in known or name.removesuffix(".amazonaws.com") in _data()["actions"]:
        return ""
    # Some services have a principal for each region, as those that deliver logs.
    regional = re.sub(r"\.[a-z]{2}(-[a-z]+)+-\d(?=\.)", "", name)
    if regional in known:
        return ""
    near = nearest(name.lower(), known, alike=_NEAR)
    return f"is no service of AWS; did you mean {near[0]!r}?" if near else ""


def misspelt(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the statement names that there isn't: the element, and why."""
    for key in ("Action", "NotAction"):
        for action in as_texts(statement.get(key)):
            reason = unknown_action(action)
            if reason:
                yield key, f"{action!r} {reason}"
    for key in ("Principal", "NotPrincipal"):
        principal = statement.get(key)
        if is_mapping(principal):
            for service in as_texts(principal.get("Service")):
                reason = unknown_service(service)
                if reason:
                    yield f"{key}.Service", f"{service!r} {reason}"
