"""Rehearsals of restores on the test control plane, with Velero played by the test.

The API server, its admission, RBAC and quotas are real, and so are Velero's definitions and the
workload that runs as a process. `Velero` here obeys the fields of a `Restore` that rehearsals use,
as pkg/restore/restore.go of Velero 1.18.1 does, with the rights that Velero has: all.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes.addons.installation import manifests
from falaj.engine.controlplane import ControlPlane
from tests.components.kubernetes.platforms import ASKED, spec

VELERO, SCRATCH, WITNESS = "velero", "restore-rehearsal", "restore-witness"
NAME = "restore-rehearsal"
SOURCE = "acme-serving"
CONFLICT = 409
BACKUP = ("velero.io/v1", "Backup")
RESTORE = ("velero.io/v1", "Restore")
RESOURCES = {
    "ConfigMap": "configmaps", "Secret": "secrets", "Service": "services", "Pod": "pods",
    "Deployment": "deployments.apps", "Job": "jobs.batch", "ServiceAccount": "serviceaccounts",
    "RoleBinding": "rolebindings.rbac.authorization.k8s.io",
    "ClusterRoleBinding": "clusterrolebindings.rbac.authorization.k8s.io",
    "ValidatingWebhookConfiguration":
        "validatingwebhookconfigurations.admissionregistration.k8s.io",
}  # fmt: skip


def platform() -> list[dict[str, Any]]:
    """What the platform declares for rehearsals, with the namespaces that it is in."""
    velero = {**ASKED["existing"]["velero"], "rehearsal": {"namespaces": [SOURCE]}}
    wanted = {VELERO, SCRATCH, WITNESS}
    found = [
        dict(each)
        for each in manifests(spec("existing", {"velero": velero}))
        if each["metadata"].get("namespace") in wanted
        or each["metadata"]["name"] in {*wanted, f"falaj-{NAME}", "falaj-platform"}
    ]
    return [each for each in found if not each["apiVersion"].startswith("monitoring.")]


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, Mapping):
        return patch
    new = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def of_every_namespace(namespace: str) -> list[dict[str, Any]]:
    """What Kubernetes itself puts into each namespace, and a backup has of each."""
    kinds = {"ConfigMap": "kube-root-ca.crt", "ServiceAccount": "default"}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}}
        for kind, name in kinds.items()
    ]


def witness(plane: ControlPlane) -> dict[str, Any]:
    """The witness as the platform declared it."""
    found = plane.objects.get("v1", "ConfigMap", NAME, WITNESS)
    assert found
    about = {"name": NAME, "namespace": WITNESS, "labels": found["metadata"]["labels"]}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": found["data"]}


@dataclass
class Velero:
    """Plays Velero: carries out restores of one backup."""

    plane: ControlPlane
    contents: Sequence[Mapping[str, Any]]
    loses: frozenset[str] = frozenset()
    """Names that are in the backup and don't come back, without an error."""
    idle: bool = False
    """Whether restores stay as they are."""
    made: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    refused: list[str] = field(default_factory=list[str])
    _end: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self._end.wait(0.1):
            for restore in self.plane.objects.list(*RESTORE, VELERO):
                if not restore.get("status", {}).get("phase") and not self.idle:
                    with suppress(ApiException):
                        self.carry_out(restore)

    def end(self) -> None:
        self._end.set()

    def carry_out(self, restore: Mapping[str, Any]) -> None:
        asked = restore["spec"]
        modifier = self.plane.objects.get(
            "v1", "ConfigMap", asked["resourceModifier"]["name"], VELERO
        )
        assert modifier
        (text,) = modifier["data"].values()
        rules = json.loads(text)["resourceModifierRules"]
        total = 0
        for each in (*self.contents, *of_every_namespace(SOURCE), *of_every_namespace(WITNESS)):
            resource, namespace = RESOURCES[each["kind"]], each["metadata"].get("namespace")
            if resource not in asked["includedResources"] or (
                namespace not in asked["includedNamespaces"]
            ):
                continue
            total += 1
            if each["metadata"]["name"] not in self.loses:
                self._make(restore, resource, each, rules)
        phase = "PartiallyFailed" if self.refused else "Completed"
        status = {
            "phase": phase, "errors": len(self.refused),
            "progress": {"totalItems": total, "itemsRestored": total},
        }  # fmt: skip
        self._change(restore, status)

    def _make(
        self, restore: Mapping[str, Any], resource: str, each: Mapping[str, Any],
        rules: Sequence[Mapping[str, Any]],
    ) -> None:  # fmt: skip
        made: Any = copy.deepcopy(dict(each))
        for rule in rules:
            wanted = rule["conditions"].get("matches") or ()
            if rule["conditions"]["groupResource"] == resource and all(
                each.get("spec", {}).get(one["path"].rpartition("/")[2]) == one["value"]
                for one in wanted
            ):
                for patch in rule["mergePatches"]:
                    made = merged(made, json.loads(patch["patchData"]))
        about = made["metadata"]
        about["namespace"] = restore["spec"]["namespaceMapping"][about["namespace"]]
        about["labels"] = {
            **about.get("labels", {}), "velero.io/restore-name": restore["metadata"]["name"],
        }  # fmt: skip
        try:
            self.made.append(self.plane.objects.create(made))
        except ApiException as error:
            if error.status == CONFLICT:  # it stays as it is, without labels
                return
            self.refused.append(str(json.loads(error.body or "{}").get("message")))

    def _change(self, restore: Mapping[str, Any], status: Mapping[str, Any]) -> None:
        self.plane.objects.patch(*RESTORE, restore["metadata"]["name"], {"status": status}, VELERO)


@contextmanager
def played(velero: Velero) -> Generator[Velero]:
    """Velero, for a while."""
    thread = threading.Thread(target=velero.run)
    thread.start()
    try:
        yield velero
    finally:
        velero.end()
        thread.join()


def backup(
    plane: ControlPlane, name: str, age_hours: float = 1.0, phase: str = "Completed"
) -> None:
    """A backup of the schedule, as Velero notes one."""
    started = datetime.now(UTC) - timedelta(hours=age_hours)
    plane.objects.create({
        "apiVersion": "velero.io/v1", "kind": "Backup",
        "metadata": {
            "name": name, "namespace": VELERO,
            "labels": {"velero.io/schedule-name": "velero-daily"},
        },
        "spec": {},
        "status": {"phase": phase, "startTimestamp": f"{started:%Y-%m-%dT%H:%M:%SZ}"},
    })  # fmt: skip


@dataclass(frozen=True)
class Account:
    """The account of rehearsals, and how its pod would run."""

    plane: ControlPlane
    folder: Path

    def command(self) -> list[str]:
        objects = self.plane.objects
        path = f"/api/v1/namespaces/{VELERO}/serviceaccounts/{NAME}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
                 "spec": {"expirationSeconds": 3600}}  # fmt: skip
        token = objects.request("POST", path, asked)["status"]["token"]
        (self.folder / "token").write_text(token, "ascii")
        plan = objects.get("v1", "ConfigMap", NAME, VELERO)
        assert plan
        (self.folder / "plan.json").write_text(plan["data"]["plan.json"], "utf-8")
        return [
            sys.executable, "-m", "falaj.workloads.restoring", "rehearse",
            "--plan", str(self.folder / "plan.json"), "--token", str(self.folder / "token"),
            "--authority", str(self.plane.files.authority),
            "--server", objects.client.configuration.host,
        ]  # fmt: skip

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def rehearse(self) -> tuple[int, dict[str, Any], str]:
        """Exit status, report and complaints of one rehearsal."""
        with self.start() as process:
            out, complaints = process.communicate(timeout=300)
        return process.returncode, json.loads(out or "{}"), complaints
