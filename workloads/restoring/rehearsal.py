"""One rehearsal: the newest backup is restored beside its origin, looked at, and thrown away.

Velero's objects: https://velero.io/docs/v1.18/api-types/restore/,
https://github.com/vmware-tanzu/velero/tree/v1.18.1/pkg/apis/velero/v1

What is asked of a restore: Velero ends it as ``Completed`` without errors; at least as many
objects are there as Velero took from the backup; and the witness, whose content is known, has it.
Names and numbers are reported, never the values of an object. Secrets aren't even listed, as
whoever lists them reads them: the namespace's quota counts them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from falaj.workloads.api_requests import ApiServer
from falaj.workloads.api_server import ApiError
from falaj.workloads.documents import mapping
from falaj.workloads.restoring.plan import Plan, ResourceKind

_API: Final = "velero.io/v1"
_MINE: Final = "falaj.io/rehearsal"
"""Label of the restores that rehearsals make."""
_OF_SCHEDULE: Final = "velero.io/schedule-name"
_OF_RESTORE: Final = "velero.io/restore-name"
COMPLETED: Final = "Completed"
#: https://github.com/vmware-tanzu/velero/blob/v1.18.1/pkg/apis/velero/v1/restore_types.go
_ENDED: Final = frozenset({COMPLETED, "PartiallyFailed", "Failed", "FailedValidation"})
_POLL_SECONDS: Final = 2.0
CLEAN_SECONDS: Final = 300.0
"""Until the scratch namespace has to be empty again."""
_CONFIG_MAP: Final = ResourceKind("", "v1", "configmaps")
_QUOTA: Final = ResourceKind("", "v1", "resourcequotas")
#: Whoever may list them may read their values.
#: https://kubernetes.io/docs/concepts/security/rbac-good-practices/#listing-secrets
SECRETS: Final = "secrets"
_Found = TypeVar("_Found")


class GivenUpError(Exception):
    """What was waited for didn't come in time, or the process was asked to end."""


@dataclass
class Restored:
    """What came back of one namespace."""

    namespace: str
    phase: str = ""
    seconds: float = 0.0
    in_backup: int = 0
    """Objects that Velero took from the backup."""
    objects: dict[str, int] = field(default_factory=dict[str, int])
    """How many are there, by kind."""
    names: str = ""
    """SHA-256 of the kinds and names that may be listed, to compare rehearsals by."""
    warnings: int = 0


@dataclass
class Report:
    """A rehearsal's outcome; without findings it succeeded."""

    started: str
    schedule: str
    backup: str = ""
    backup_started: str = ""
    backup_age_hours: float = 0.0
    restored: list[Restored] = field(default_factory=list[Restored])
    findings: list[str] = field(default_factory=list[str])
    ended: str = ""

    def document(self) -> str:
        """As JSON, on one line."""
        return json.dumps(asdict(self), sort_keys=True)


class Rehearsal:
    """Carries out a plan."""

    def __init__(
        self,
        api: ApiServer,
        plan: Plan,
        stopped: Callable[[], bool] = lambda: False,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        """Ask for nothing yet.

        Args:
            api: the API server.
            plan: what is rehearsed.
            stopped: whether the process was asked to end.
            poll_seconds: between two looks.
        """
        self._api = api
        self._plan = plan
        self._stopped = stopped
        self._poll = poll_seconds
        self._restores = f"/apis/{_API}/namespaces/{plan.velero}/restores"
        self._backups = f"/apis/{_API}/namespaces/{plan.velero}/backups"

    def run(self) -> Report:
        """Restore, look and clean up, whatever comes between.

        Returns:
            What was found; faults of backups and restores are its findings.

        Raises:
            ApiError: the account may not do what it has to, or the API server was gone at the
                start.
        """
        report = Report(_now().isoformat(timespec="seconds"), self._plan.schedule)
        until = time.monotonic() + self._plan.minutes * 60
        try:
            # Of a rehearsal that was killed: its restore may still run.
            self._clean(until)
            backup = self._newest(report)
            if backup:
                for number, source in enumerate(self._plan.sources):
                    self._rehearse(report, backup, source, number, until)
                    self._clean(until)
        except GivenUpError as error:
            report.findings.append(str(error))
        finally:
            self._clean_up(report)
            report.ended = _now().isoformat(timespec="seconds")
        return report

    def keep(self, report: Report) -> None:
        """Write the report to where it is kept. Raises ApiError."""
        data = {"last.json": report.document()}
        if not report.findings:
            data["last-success.json"] = report.document()
        at = _CONFIG_MAP.path(self._plan.velero, self._plan.results)
        self._api.merge(at, {"data": data})

    def _newest(self, report: Report) -> str:
        """Name of the newest whole backup; empty where none will do, which is then reported."""
        label = f"{_OF_SCHEDULE}={self._plan.schedule}"
        found = self._api.items(self._backups, labelSelector=label)
        whole = [each for each in found if each.get("status", {}).get("phase") == COMPLETED]
        if not whole:
            report.findings.append(
                f"no backup of the schedule {self._plan.schedule} is complete; there are "
                f"{_phases(found)}; see `velero backup describe` and Velero's log"
            )
            return ""
        newest = max(whole, key=_started)
        started = _started(newest)
        report.backup = str(newest["metadata"]["name"])
        report.backup_started = started.isoformat(timespec="seconds")
        age = _now() - started
        report.backup_age_hours = round(age / timedelta(hours=1), 2)
        if age > timedelta(hours=self._plan.recovery_point_hours):
            report.findings.append(
                f"the newest complete backup, {report.backup}, began {report.backup_age_hours} h "
                f"ago; at most {self._plan.recovery_point_hours} h would be lost by the recovery "
                f"point objective; there are {_phases(found)}"
            )
            return ""
        return report.backup

    def _rehearse(
        self, report: Report, backup: str, source: str, number: int, until: float
    ) -> None:
        name = f"rehearsal-{_now():%Y%m%d%H%M%S}-{number}"
        begun = time.monotonic()
        self._api.create(self._restores, self._restore(name, backup, source))
        ended = self._wait_for(
            lambda: self._ended(name), f"the restore of {source} from {backup} to end", until
        )
        status: Mapping[str, Any] = ended["status"]
        result = Restored(source, str(status["phase"]), round(time.monotonic() - begun, 1))
        result.warnings = int(status.get("warnings") or 0)
        result.in_backup = int(mapping(status.get("progress")).get("totalItems") or 0)
        report.restored.append(result)
        if result.phase != COMPLETED or status.get("errors"):
            reasons = [*(status.get("validationErrors") or ()), status.get("failureReason") or ""]
            why = "; ".join(str(each) for each in reasons if each) or "no reason is in its status"
            report.findings.append(
                f"the restore of {source} ended as {result.phase} with "
                f"{status.get('errors') or 0} errors: {why}"
            )
        self._look(report, result)

    def _look(self, report: Report, result: Restored) -> None:
        """Compare what is there with what the backup had.

        What Kubernetes itself puts into each namespace counts on both sides.
        """
        plan = self._plan
        names = {each.name: self._api.names(each.path(plan.scratch)) for each in self._listed()}
        counts = {**{kind: len(found) for kind, found in names.items()}, SECRETS: self._secrets()}
        result.objects = {kind: count for kind, count in counts.items() if count}
        listed = sorted(f"{kind}/{name}" for kind, found in names.items() for name in found)
        result.names = hashlib.sha256("\n".join(listed).encode()).hexdigest()
        there = sum(counts.values())
        if not result.in_backup:
            report.findings.append(f"the backup has nothing of the namespace {result.namespace}")
        elif there < result.in_backup:
            report.findings.append(
                f"of {result.in_backup} objects of {result.namespace} in the backup only {there} "
                "are there after the restore"
            )
        if result.namespace == plan.witness.namespace:
            self._testify(report)

    def _testify(self, report: Report) -> None:
        """Whether the witness came back with the content that it had."""
        witness = self._plan.witness
        what = f"the ConfigMap {witness.name} of {witness.namespace}"
        try:
            found = self._api.get(_CONFIG_MAP.path(self._plan.scratch, witness.name))
        except ApiError as error:
            if not error.is_missing:
                raise
            report.findings.append(f"{what} wasn't restored")
            return
        if digest_of(found.get("data") or {}) != witness.digest:
            report.findings.append(f"{what} came back with another content than it had")

    def _restore(self, name: str, backup: str, source: str) -> dict[str, Any]:
        """The order to Velero: one namespace, kinds that do nothing, nothing of the cluster's."""
        plan = self._plan
        return {
            "apiVersion": _API,
            "kind": "Restore",
            "metadata": {"name": name, "namespace": plan.velero, "labels": {_MINE: "true"}},
            "spec": {
                "backupName": backup,
                "includedNamespaces": [source],
                "namespaceMapping": {source: plan.scratch},
                "includedResources": [each.name for each in plan.kinds],
                "includeClusterResources": False,
                "restorePVs": False,
                "preserveNodePorts": False,
                "itemOperationTimeout": f"{plan.minutes}m0s",
                "resourceModifier": {"kind": "ConfigMap", "name": plan.modifier},
            },
        }

    def _ended(self, name: str) -> dict[str, Any] | None:
        found = self._api.get(f"{self._restores}/{name}")
        return found if found.get("status", {}).get("phase") in _ENDED else None

    def _clean_up(self, report: Report) -> None:
        """The last cleaning, which has its own time and happens even on request to end."""
        self._stopped = lambda: False
        try:
            self._clean(time.monotonic() + CLEAN_SECONDS, patient=False)
        except (GivenUpError, ApiError) as error:
            report.findings.append(f"{self._plan.scratch} couldn't be emptied: {error}")

    def _clean(self, until: float, *, patient: bool = True) -> None:
        """Remove all restores of rehearsals and what they restored.

        Args:
            until: when it is given up.
            patient: whether restores that run are waited for: Velero goes on with one whose
                object is gone, and what it makes then would be left.
        """
        for each in self._api.items(self._restores, labelSelector=_MINE):
            name = str(each["metadata"]["name"])
            if patient:
                self._wait_for(
                    lambda name=name: self._ended_or_gone(name), f"{name} to end", until
                )
            self._api.delete(f"{self._restores}/{name}")
        for kind in self._plan.kinds:
            path = kind.path(self._plan.scratch)
            self._api.delete_all(path, labelSelector=_OF_RESTORE)
        self._wait_for(self._is_clean, f"{self._plan.scratch} to be empty", until)

    def _ended_or_gone(self, name: str) -> bool:
        try:
            return self._ended(name) is not None
        except ApiError as error:
            if not error.is_missing:
                raise
            return True

    def _is_clean(self) -> bool:
        return not self._secrets() and not any(
            self._api.names(kind.path(self._plan.scratch), labelSelector=_OF_RESTORE)
            for kind in self._listed()
        )

    def _listed(self) -> list[ResourceKind]:
        return [each for each in self._plan.kinds if each.name != SECRETS]

    def _secrets(self) -> int:
        """How many secrets are in the scratch namespace."""
        quota = self._api.get(_QUOTA.path(self._plan.scratch, self._plan.quota))
        return int(mapping(quota.get("status", {}).get("used")).get(f"count/{SECRETS}") or 0)

    def _wait_for(self, look: Callable[[], _Found | None], what: str, until: float) -> _Found:
        """What ``look`` returns once that is anything; short faults of the API server pass."""
        last = ""
        while True:
            if self._stopped():
                raise GivenUpError(f"asked to end while waiting for {what}")
            try:
                if found := look():
                    return found
                last = ""
            except ApiError as error:
                if not error.may_pass:
                    raise
                last = f"; last: {error}"
            if time.monotonic() > until:
                raise GivenUpError(f"gave up waiting for {what}{last}")
            time.sleep(self._poll)


def digest_of(data: Mapping[str, Any]) -> str:
    """SHA-256, in hex, of the one value of a ConfigMap; empty where it has not just one."""
    if len(data) != 1:
        return ""
    (text,) = data.values()
    return hashlib.sha256(str(text).encode()).hexdigest()


def _now() -> datetime:
    return datetime.now(UTC)


def _started(backup: Mapping[str, Any]) -> datetime:
    """When a backup began: what came later isn't in it."""
    given = mapping(backup.get("status")).get("startTimestamp")
    return datetime.fromisoformat(given) if given else datetime.min.replace(tzinfo=UTC)


def _phases(backups: list[dict[str, Any]]) -> str:
    """How many backups there are in which phase, in words."""
    phases = [str(mapping(each.get("status")).get("phase") or "New") for each in backups]
    counted = {phase: phases.count(phase) for phase in sorted(set(phases))}
    return ", ".join(f"{count} {phase}" for phase, count in counted.items()) or "none"
