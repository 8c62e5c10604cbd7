"""What S3 and EFS refuse without TLS: both take plain text too, unless their policy denies it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Severity,
    View,
    get,
    indeterminate,
    rule,
    text,
    violation,
)
from falaj.policies.reading.iam import Condition, Document, Statement, read
from falaj.policies.reading.principals import is_anybody


@dataclass(frozen=True)
class Guarded:
    """A type that takes plain text unless a policy denies it.

    Attributes:
        policies: types of the companion policies.
        refers: the companion's property that names the resource.
        actions: what must be denied, at least.
        inline: whether the resource has a policy of its own as well.
    """

    policies: tuple[str, ...]
    refers: str
    actions: tuple[str, ...]
    inline: bool = False


_BUCKET: Final = Guarded(
    ("aws:s3/bucketPolicy:BucketPolicy",),
    "bucket",
    ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"),
    inline=True,
)
_FILES: Final = Guarded(
    ("aws:efs/fileSystemPolicy:FileSystemPolicy",),
    "fileSystemId",
    ("elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"),
)
_GUARDED: Final = {
    "aws:s3/bucket:Bucket": _BUCKET,
    "aws:s3/bucketV2:BucketV2": _BUCKET,
    "aws:efs/fileSystem:FileSystem": _FILES,
}
_POLICIES: Final = {kind: each for each in (_BUCKET, _FILES) for kind in each.policies}
#: Conditions that may stand beside: AWS's own services always speak TLS.
_BESIDE: Final = "aws:principalisawsservice"


def denies_plain_text(document: Document, guarded: Guarded) -> bool | None:
    """Whether a policy denies everybody all that matters without TLS; None where it's hidden."""
    denied = [_denies(each, guarded) for each in document.denying]
    if True in denied:
        return True
    hidden = (
        document.hidden or None in denied or any("*" in each.unknown for each in document.allowing)
    )
    return None if hidden else False


def _denies(statement: Statement, guarded: Guarded) -> bool | None:
    if not all(statement.grants(each) for each in guarded.actions):
        return False if statement.can_see("action", "notaction") else None
    elements = ("condition", "principal", "notprincipal")
    if not statement.can_see(*elements, *(() if guarded is _FILES else ("resource",))):
        return None
    everybody = any(is_anybody(who) for _, who in statement.principals)
    tests = [each for each in statement.conditions if each.key != _BESIDE]
    on_content = guarded is _FILES or any(each.endswith("*") for each in statement.resources)
    return everybody and on_content and len(tests) == 1 and _is_plain(tests[0])


def _is_plain(condition: Condition) -> bool:
    """``aws:SecureTransport`` is false."""
    return (
        condition.key == "aws:securetransport"
        and condition.operator in {"bool", "boolifexists", "stringequals", "stringlike"}
        and condition.values == ("false",)
    )


def _judge(denied: list[bool | None], path: str, what: str) -> Iterator[Finding]:
    if True in denied:
        return
    if None in denied:
        why = f"the policy can't be seen, so nobody knows whether {what} refuses plain text"
        yield indeterminate(path, why)
    else:
        why = f"no policy denies requests without TLS (aws:SecureTransport), which {what} takes"
        yield violation(path, why)


@rule(
    "encryption-aws-storage-transport",
    "Buckets and file systems on AWS refuse requests without TLS",
    Severity.MEDIUM,
    set(_GUARDED) | set(_POLICIES),
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32", "nist-800-207:2"),
    "Give the bucket or file system a policy with a statement that denies everybody (Principal *) "
    "all actions on it and on what it holds, where aws:SecureTransport is false.",
)
def storage_transport(resource: Resource, view: View) -> Iterator[Finding]:
    """S3 and NFS take plain text by default.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/security-best-practices.html,
    https://docs.aws.amazon.com/efs/latest/ug/enforce-encryption-in-transit.html
    """
    if resource.kind in _POLICIES:
        yield from _alone(resource, view, _POLICIES[resource.kind])
        return
    guarded = _GUARDED[resource.kind]
    denied: list[bool | None] = []
    own = get(resource.properties, "policy") if guarded.inline else ABSENT
    if own is not ABSENT:
        denied.append(denies_plain_text(read(own, "policy"), guarded))
    if view.stack is None:
        if True not in denied:
            yield indeterminate("policy", "a policy beside it may refuse plain text")
        return
    for kind in guarded.policies:
        for each in view.stack.referring(resource, kind, guarded.refers):
            found = read(get(each.properties, "policy"), "policy")
            denied.append(denies_plain_text(found, guarded))
    yield from _judge(denied, "policy", "S3" if guarded is _BUCKET else "EFS")


def _alone(resource: Resource, view: View, guarded: Guarded) -> Iterator[Finding]:
    """A policy of something that isn't in the stack; else its owner is judged, with it."""
    if view.stack is None:
        yield indeterminate("policy", "what it guards may be of this stack")
    elif not any(each.kind in _GUARDED for each in view.referred(resource, guarded.refers)):
        document = read(get(resource.properties, "policy"), "policy")
        what = text(get(resource.properties, guarded.refers)) or "what it guards"
        yield from _judge([denies_plain_text(document, guarded)], "policy", what)


RULES: Final = (storage_transport,)
