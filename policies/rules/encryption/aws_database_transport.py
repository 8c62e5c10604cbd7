"""Whether AWS's databases turn away callers without TLS, which their parameter groups say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Severity,
    View,
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


def _database(resource: Resource, view: View) -> Iterator[Finding]:
    """A database with a default group; groups of one's own are judged by themselves."""
    path = _DATABASES[resource.kind]
    group = get(resource.properties, path)
    if isinstance(group, Unknown):
        if not any(each.kind in _GROUPS for each in view.referred(resource, path)):
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
def database_transport(resource: Resource, view: View) -> Iterator[Finding]:
    """Callers of databases must use TLS, not only may."""
    yield from _group(resource) if resource.kind in _GROUPS else _database(resource, view)


RULES: Final = (database_transport,)
