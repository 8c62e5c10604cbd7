"""What callers without TLS meet: parameters of databases, policies of resources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_unknown,
    items,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.iam import Condition, Document, Statement, is_anybody, read

# Whether AWS's databases turn away callers without TLS, which their parameter groups say.

_ON: Final = ("1", "on", "true")
_GROUPS: Final = frozenset((
    "aws:rds/parameterGroup:ParameterGroup",
    "aws:rds/clusterParameterGroup:ClusterParameterGroup",
    "aws:docdb/clusterParameterGroup:ClusterParameterGroup",
    "aws:neptune/clusterParameterGroup:ClusterParameterGroup",
    "aws:redshift/parameterGroup:ParameterGroup",
))  # fmt: skip
#: Where databases name their parameter group.
_DATABASES: Final = {
    "aws:rds/instance:Instance": "parameterGroupName",
    "aws:rds/cluster:Cluster": "dbClusterParameterGroupName",
}


@dataclass(frozen=True)
class Forcing:
    """The parameter that turns away callers without TLS."""

    name: str
    is_on: bool
    """Whether it is on where nobody sets it."""
    good: tuple[str, ...]


#: The beginning of families' names; the parameter; the first version (1 for all) in which it is on
#: by default, or None; and the values that force TLS.
_FORCING: Final = (
    ("mysql", "require_secure_transport", None, _ON),
    ("mariadb", "require_secure_transport", None, _ON),
    ("aurora-postgresql", "rds.force_ssl", 17, _ON),
    ("aurora", "require_secure_transport", None, _ON),
    ("postgres", "rds.force_ssl", 15, _ON),
    ("sqlserver", "rds.force_ssl", None, _ON),
    ("docdb", "tls", 1, ("enabled", "tls1.2+", "tls1.3+", "fips-140-3")),
    ("neptune", "neptune_enforce_ssl", 1, _ON),
    ("redshift", "require_ssl", 2, _ON),
)


def forcing(family: str) -> Forcing | None:
    """The parameter of a family such as ``postgres16``; None where a family has none.

    Defaults: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/PostgreSQL.Concepts.General.SSL.html,
    https://docs.aws.amazon.com/AmazonRDS/latest/AuroraUserGuide/AuroraPostgreSQL.Security.html,
    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/mysql-ssl-connections.html,
    https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/SQLServer.Concepts.General.SSL.Using.html,
    https://docs.aws.amazon.com/documentdb/latest/developerguide/security.encryption.ssl.html,
    https://docs.aws.amazon.com/neptune/latest/userguide/security-ssl.html,
    https://docs.aws.amazon.com/redshift/latest/mgmt/connecting-ssl-support.html
    """
    found = re.match(r"([a-z][a-z-]*?)-?(\d+)?(?:[.\d]*|[a-z-]*)$", family.lower())
    engine, major = (found[1], int(found[2] or 99)) if found else (family.lower(), 99)
    for prefix, name, first, good in _FORCING:
        if engine.startswith(prefix):
            return Forcing(name, is_on=first is not None and major >= first, good=good)
    return None


def _group(resource: Resource) -> Iterator[Finding]:
    family = get(resource.properties, "family")
    given = get(resource.properties, "parameters")
    if isinstance(family, Unknown) or isinstance(given, Unknown):
        path, hidden = ("family", family) if isinstance(family, Unknown) else ("parameters", given)
        yield indeterminate(path, f"{path} {hidden.reason}, so nobody knows whether TLS is forced")
        return
    wanted = forcing(text(family))
    if wanted is None:
        return
    listed = list(enumerate(items(given)))
    named = [(index, each) for index, each in listed if scalar(get(each, "name")) == wanted.name]
    for index, each in named:
        yield from _set(f"parameters[{index}].value", get(each, "value"), wanted)
    if not named and not wanted.is_on:
        why = f"{wanted.name} isn't set, and by default callers without TLS are taken"
        hidden = any(is_unknown(get(each, "name")) for _, each in listed)
        yield indeterminate("parameters", why) if hidden else violation("parameters", why)


def _set(path: str, value: Any, wanted: Forcing) -> Iterator[Finding]:
    if isinstance(value, Unknown):
        yield indeterminate(path, f"{wanted.name} {value.reason}")
    elif scalar(value) not in wanted.good:
        why = (
            f"{wanted.name} is {scalar(value) or 'no plain value'}: callers without TLS are taken"
        )
        yield violation(path, why)


def _database(resource: Resource, context: Context) -> Iterator[Finding]:
    """A database with a default group; groups of one's own are judged by themselves."""
    path = _DATABASES[resource.kind]
    group = get(resource.properties, path)
    if isinstance(group, Unknown):
        if not any(each.kind in _GROUPS for each in context.referred(resource, path)):
            yield indeterminate(path, f"{path} {group.reason}; a default group forces no TLS")
        return
    if group is not ABSENT and not text(group).lower().startswith("default."):
        return
    engine, version = (get(resource.properties, each) for each in ("engine", "engineVersion"))
    for name, value in (("engine", engine), ("engineVersion", version)):
        if isinstance(value, Unknown):
            why = f"{name} {value.reason}, so nobody knows whether TLS is forced by default"
            yield indeterminate(name, why)
            return
    family = text(group).lower().removeprefix("default.") or f"{text(engine)}{text(version)}"
    wanted = forcing(family) if text(engine) or text(group) else None
    if wanted is not None and not wanted.is_on:
        why = f"{path} names no group of one's own, and by default {wanted.name} is off"
        yield violation(path, f"{why}, so callers without TLS are taken")


@rule(
    "encryption-aws-database-transport",
    "Databases on AWS turn away callers without TLS",
    Severity.HIGH,
    _GROUPS | set(_DATABASES),
    ("iso27001:A.8.24", "iso27001:A.5.14", "uae-ia:T4.2.x", "gdpr:32", "nist-800-207:2"),
    "Make a parameter group with rds.force_ssl 1 (PostgreSQL, SQL Server), "
    "require_secure_transport ON (MySQL, MariaDB), tls enabled (DocumentDB) or require_ssl true "
    "(Redshift), and name it in the database.",
)
def database_transport(resource: Resource, context: Context) -> Iterator[Finding]:
    """Callers of databases must use TLS, not only may."""
    yield from _group(resource) if resource.kind in _GROUPS else _database(resource, context)


# What S3 and EFS refuse without TLS: both take plain text too, unless their policy denies it.


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
def storage_transport(resource: Resource, context: Context) -> Iterator[Finding]:
    """S3 and NFS take plain text by default.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/security-best-practices.html,
    https://docs.aws.amazon.com/efs/latest/ug/enforce-encryption-in-transit.html
    """
    if resource.kind in _POLICIES:
        yield from _alone(resource, context, _POLICIES[resource.kind])
        return
    guarded = _GUARDED[resource.kind]
    denied: list[bool | None] = []
    own = get(resource.properties, "policy") if guarded.inline else ABSENT
    if own is not ABSENT:
        denied.append(denies_plain_text(read(own, "policy"), guarded))
    if context.stack is None:
        if True not in denied:
            yield indeterminate("policy", "a policy beside it may refuse plain text")
        return
    for kind in guarded.policies:
        for each in context.stack.referring(resource, kind, guarded.refers):
            found = read(get(each.properties, "policy"), "policy")
            denied.append(denies_plain_text(found, guarded))
    yield from _judge(denied, "policy", "S3" if guarded is _BUCKET else "EFS")


def _alone(resource: Resource, context: Context, guarded: Guarded) -> Iterator[Finding]:
    """A policy of something that isn't in the stack; else its owner is judged, with it."""
    if context.stack is None:
        yield indeterminate("policy", "what it guards may be of this stack")
    elif not any(each.kind in _GUARDED for each in context.referred(resource, guarded.refers)):
        document = read(get(resource.properties, "policy"), "policy")
        what = text(get(resource.properties, guarded.refers)) or "what it guards"
        yield from _judge([denies_plain_text(document, guarded)], "policy", what)


RULES: tuple[Rule, ...] = (
    database_transport,
    storage_transport,
)
