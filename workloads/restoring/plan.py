"""What is rehearsed: a file that the platform writes, read as strictly as if a person had."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, cast

from falaj.workloads.errors import WorkloadError

#: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123)
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_WORD: Final = re.compile(r"[a-z0-9.]*")


@dataclass(frozen=True)
class ResourceKind:
    """Objects of one kind, as the API server's addresses name them."""

    group: str
    """Empty for the core group."""
    version: str
    resource: str
    """In the plural, as ``configmaps``."""

    @property
    def name(self) -> str:
        """As Velero names it: ``deployments.apps``."""
        return f"{self.resource}.{self.group}" if self.group else self.resource

    def path(self, namespace: str, name: str = "") -> str:
        """The address of the kind in a namespace, or of one object."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        at = f"{root}/namespaces/{namespace}/{self.resource}"
        return f"{at}/{name}" if name else at


@dataclass(frozen=True)
class Witness:
    """A ConfigMap whose content is known beforehand, in a namespace of its own."""

    namespace: str
    name: str
    """Of the ConfigMap."""
    digest: str
    """SHA-256, in hex, of its one value."""


@dataclass(frozen=True)
class Plan:
    """What is restored, whither, and when it counts."""

    velero: str
    """Velero's namespace."""
    schedule: str
    """Name of the schedule whose backups are tried."""
    scratch: str
    """The namespace that is restored into, and emptied afterwards."""
    quota: str
    """ResourceQuota there, which counts what may not be listed."""
    namespaces: tuple[str, ...]
    """What is restored beside the witness, one after the other."""
    kinds: tuple[ResourceKind, ...]
    """What is restored of each: nothing that acts."""
    witness: Witness
    modifier: str
    """ConfigMap of changes on the way back, in Velero's namespace."""
    results: str
    """ConfigMap that gets the result, there."""
    recovery_point_hours: int
    """How old the newest backup may be."""
    minutes: int
    """After which a rehearsal is given up, cleaning up not counted."""

    @property
    def sources(self) -> tuple[str, ...]:
        """All namespaces that are restored, the witness's first."""
        return (self.witness.namespace, *self.namespaces)


def read(path: Path) -> Plan:
    """Read a plan.

    Raises:
        WorkloadError: the file can't be read, or says something that can't be.
    """
    try:
        found: object = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise WorkloadError(f"can't read the plan {path}: {error}") from error
    plan = _keys(path, "the plan", found, Plan)
    witness = _keys(path, "witness", plan["witness"], Witness)
    kinds = [
        _keys(path, "kinds", each, ResourceKind) for each in _list(path, "kinds", plan["kinds"])
    ]
    for at in ("velero", "schedule", "scratch", "quota", "modifier", "results"):
        _match(path, at, plan[at], _NAME)
    for at in ("namespace", "name"):
        _match(path, f"witness.{at}", witness[at], _NAME)
    _match(path, "witness.digest", witness["digest"], _DIGEST)
    for kind in kinds:
        _match(path, "kinds.group", kind["group"], _WORD)
        for at in ("version", "resource"):
            _match(path, f"kinds.{at}", kind[at], _NAME)
    namespaces = _list(path, "namespaces", plan["namespaces"])
    for each in namespaces:
        _match(path, "namespaces", each, _NAME)
    found_plan = Plan(
        velero=plan["velero"],
        schedule=plan["schedule"],
        scratch=plan["scratch"],
        quota=plan["quota"],
        namespaces=tuple(namespaces),
        kinds=tuple(ResourceKind(**each) for each in kinds),
        witness=Witness(**witness),
        modifier=plan["modifier"],
        results=plan["results"],
        recovery_point_hours=_above_zero(path, plan, "recovery_point_hours"),
        minutes=_above_zero(path, plan, "minutes"),
    )
    taken = {found_plan.scratch, found_plan.velero} & set(found_plan.sources)
    if taken or len(set(found_plan.sources)) < len(found_plan.sources):
        raise WorkloadError(
            f"{path}: given namespaces {', '.join(found_plan.sources)}; allowed: each once, and "
            f"neither {found_plan.scratch} nor {found_plan.velero}"
        )
    if not found_plan.kinds:
        raise WorkloadError(f"{path}: kinds is empty; name what is restored")
    return found_plan


def _keys(path: Path, at: str, value: object, kind: type) -> dict[str, Any]:
    wanted = sorted(each.name for each in fields(kind))
    if not isinstance(value, Mapping):
        raise WorkloadError(f"{path}: {at} has to be an object with {', '.join(wanted)}")
    given = cast("Mapping[str, Any]", value)
    if sorted(given) != wanted:
        raise WorkloadError(
            f"{path}: {at} has {', '.join(sorted(given)) or 'nothing'}; "
            f"allowed and needed: {', '.join(wanted)}"
        )
    return dict(given)


def _list(path: Path, at: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise WorkloadError(f"{path}: given {at} {value!r}; allowed: a list")
    return cast("list[Any]", value)


def _match(path: Path, at: str, value: object, pattern: re.Pattern[str]) -> None:
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise WorkloadError(f"{path}: given {at} {value!r}; allowed: {pattern.pattern}")


def _above_zero(path: Path, plan: Mapping[str, Any], at: str) -> int:
    value: object = plan[at]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{path}: given {at} {value!r}; allowed: a whole number above 0")
    return value
