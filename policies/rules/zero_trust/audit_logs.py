"""Which services of AWS record who did what, and where they are told to: a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    get,
    indeterminate,
    is_true,
    is_unknown,
    items,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.types import aws, aws_type


@dataclass(frozen=True)
class Exports:
    """A list of the kinds of logs that a service exports, none by default.

    Attributes:
        path: of the list.
        kinds: of which one has to be among them, by what the engine begins with; for engines
            that no row names any kind will do.
    """

    path: str
    kinds: Mapping[str, tuple[str, ...]]


#: https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/USER_LogAccess.Procedural.UploadtoCloudWatch.html
_OF_ENGINES: Final[Mapping[str, tuple[str, ...]]] = {
    "aurora-postgresql": ("postgresql",),
    "postgres": ("postgresql",),
    "aurora": ("audit",),
    "mysql": ("audit",),
    "mariadb": ("audit",),
    "oracle": ("audit",),
    "sqlserver": ("error",),
    "db2": ("diag.log",),
}
#: https://docs.aws.amazon.com/redshift/latest/mgmt/db-auditing.html
_OF_WAREHOUSES: Final = ("connectionlog", "userlog", "useractivitylog")
EXPORTS: Final[Mapping[str, Exports]] = {
    **dict.fromkeys(
        aws("rds/instance", "rds/cluster"), Exports("enabledCloudwatchLogsExports", _OF_ENGINES)
    ),
    aws_type("docdb/cluster"): Exports("enabledCloudwatchLogsExports", {"": ("audit",)}),
    aws_type("neptune/cluster"): Exports("enableCloudwatchLogsExports", {"": ("audit",)}),
    aws_type("redshiftserverless/namespace"): Exports("logExports", {"": _OF_WAREHOUSES}),
}
_INSTANCE: Final = aws_type("rds/instance")

#: Switches of which any one that is on will do; all are off by default.
SWITCHES: Final[Mapping[str, tuple[str, ...]]] = {
    # https://docs.aws.amazon.com/msk/latest/developerguide/msk-logging.html
    aws_type("msk/cluster"): tuple(
        f"loggingInfo.brokerLogs.{each}.enabled" for each in ("cloudwatchLogs", "firehose", "s3")
    ),
    # https://docs.aws.amazon.com/mwaa/latest/userguide/monitoring-airflow.html
    aws_type("mwaa/environment"): ("loggingConfiguration.webserverLogs.enabled",),
}

WANTED: Final = "access has to be recorded"
OFF: Final = "access isn't recorded by default"
#: What one property says by itself.
REQUIREMENTS: Final[Mapping[frozenset[str], Sequence[Requirement]]] = {
    # https://docs.aws.amazon.com/step-functions/latest/dg/cw-logs.html
    aws("sfn/stateMachine"): (
        Requirement(
            "loggingConfiguration.level", ("ALL", "ERROR", "FATAL"), absent=OFF, hint=WANTED
        ),
    ),
    # https://docs.aws.amazon.com/AmazonECS/latest/developerguide/ecs-exec.html
    aws("ecs/cluster"): (
        Requirement(
            "configuration.executeCommandConfiguration.logging", denied=("none",), hint=WANTED
        ),
    ),
    # https://docs.aws.amazon.com/appsync/latest/devguide/monitoring.html
    aws("appsync/graphQLApi"): (
        Requirement("logConfig", absent=OFF, hint=WANTED),
        Requirement("logConfig.fieldLogLevel", denied=("none",), hint=WANTED),
    ),
}


@dataclass(frozen=True)
class Beside:
    """A resource of its own that switches a log on.

    Attributes:
        kind: its type.
        path: of the property that names whose log it is.
        kinds: path of the kinds that it records, and those of which one has to be among them;
            empty where any will do.
        unless: a path, and its values where nothing is said of kinds.
    """

    kind: str
    path: str
    kinds: tuple[str, tuple[str, ...]] = ("", ())
    unless: tuple[str, tuple[str, ...]] = ("", ())


BESIDE: Final[Mapping[str, Beside]] = {
    aws_type("redshift/cluster"): Beside(
        aws_type("redshift/logging"),
        "clusterIdentifier",
        ("logExports", _OF_WAREHOUSES),
        # In a bucket every kind is kept.
        ("logDestinationType", ("s3", "")),
    ),
    aws_type("wafv2/webAcl"): Beside(aws_type("wafv2/webAclLoggingConfiguration"), "resourceArn"),
    aws_type("networkfirewall/firewall"): Beside(
        aws_type("networkfirewall/loggingConfiguration"), "firewallArn"
    ),
}

TYPES: Final = frozenset((*EXPORTS, *SWITCHES, *BESIDE)).union(*REQUIREMENTS)


def unrecorded(resource: Resource, context: Context) -> Iterator[Finding]:
    """What a resource of the table doesn't record."""
    if found := EXPORTS.get(resource.kind):
        yield from _exports(resource, found)
    if paths := SWITCHES.get(resource.kind):
        yield from _switches(resource, paths)
    if beside := BESIDE.get(resource.kind):
        yield from _beside(resource, beside, context)


def _exports(resource: Resource, wanted: Exports) -> Iterator[Finding]:
    engine = resource.get("engine")
    # Members of Aurora's clusters record as their cluster does.
    if resource.kind == _INSTANCE and text(engine).lower().startswith("aurora"):
        return
    given = resource.get(wanted.path)
    if is_unknown(given) or any(is_unknown(each) for each in items(given)):
        yield indeterminate(wanted.path, f"which logs are exported can't be known; {WANTED}")
        return
    names = {scalar(each) for each in items(given)}
    if not names:
        yield violation(wanted.path, f"{OFF}; {WANTED}")
        return
    if is_unknown(engine):
        yield indeterminate("engine", f"which log is needed can't be known; {WANTED}")
        return
    kinds = next(
        (one for start, one in wanted.kinds.items() if scalar(engine).startswith(start)), ()
    )
    if kinds and names.isdisjoint(kinds):
        yield violation(
            wanted.path, f"none of its logs is {' or '.join(kinds)}, which records access"
        )


def _switches(resource: Resource, paths: Sequence[str]) -> Iterator[Finding]:
    values = [resource.get(each) for each in paths]
    if any(map(is_true, values)):
        return
    hidden = next((each for each, one in zip(paths, values, strict=True) if is_unknown(one)), "")
    if hidden:
        yield indeterminate(hidden, f"whether it is on can't be known; {WANTED}")
    else:
        where = next(
            (each for each, one in zip(paths, values, strict=True) if one is not ABSENT), paths[0]
        )
        yield violation(where, f"none of {', '.join(paths)} is on; {WANTED}")


def _beside(resource: Resource, beside: Beside, context: Context) -> Iterator[Finding]:
    if context.stack is None:
        yield indeterminate("", "whether access is recorded, the whole stack says")
        return
    found = [
        *context.stack.referring(resource, beside.kind, beside.path),
        *_by_identifier(resource, beside, context),
    ]
    if not found:
        yield violation("", f"no {beside.kind.rpartition(':')[2]} is for it; {WANTED}")
    elif not any(_records(each, beside) for each in found):
        yield violation("", f"what is recorded isn't {' or '.join(beside.kinds[1])}; {WANTED}")


def _by_identifier(resource: Resource, beside: Beside, context: Context) -> Iterator[Resource]:
    own: Any = resource.get(beside.path)
    for each in context.stack.of_kind(beside.kind) if context.stack and text(own) else ():
        if text(each.get(beside.path)) == text(own):
            yield each


def _records(found: Resource, beside: Beside) -> bool:
    path, kinds = beside.kinds
    if not path:
        return True
    where, values = beside.unless
    if scalar(get(found.properties, where)) in values:
        return True
    return any(
        is_unknown(value)
        or any(is_unknown(each) or scalar(each) in kinds for each in items(value))
        for _, value in select(found.properties, path)
    )
