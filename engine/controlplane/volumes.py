"""Volumes of real machines: folders of this computer's disk, which all machines have.

A claim of a class whose provisioner is `PROVISIONER` gets one, by any way of access: many pods may
write to it from many machines. What nobody claims any more is removed. Sizes aren't kept to.

As https://github.com/rancher/local-path-provisioner does on a machine's own disk.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane.objects import Objects
from falaj.engine.controlplane.processes import Files
from falaj.wire.documents import mapping

PROVISIONER: Final = "falaj.io/folder"
_CLASS: Final = ("storage.k8s.io/v1", "StorageClass")
_VOLUME: Final = ("v1", "PersistentVolume")
_MADE_BY: Final = "pv.kubernetes.io/provisioned-by"


def folder_of(files: Files, objects: Objects, claim: str, namespace: str) -> Path | None:
    """The folder behind a claim; None where it has none yet."""
    found = objects.get("v1", "PersistentVolumeClaim", claim, namespace)
    name = found and found["spec"].get("volumeName")
    return root(files) / str(name) if name else None


def root(files: Files) -> Path:
    """Where the folders of a control plane are."""
    return files.folder / "volumes"


class Volumes:
    """The folders of one control plane."""

    def __init__(self, folder: Path, objects: Objects) -> None:
        self._folder = folder
        self._objects = objects

    def keep(self) -> None:
        """Make what claims wait for, and remove what was released.

        Raises ApiException: the API server refuses something.
        """
        classes = {
            each["metadata"]["name"]: each
            for each in self._objects.list(*_CLASS)
            if each["provisioner"] == PROVISIONER
        }
        if not classes:
            return
        for claim in self._objects.list("v1", "PersistentVolumeClaim"):
            name = claim["spec"].get("storageClassName")
            if name in classes and not claim["spec"].get("volumeName"):
                self._make(claim, classes[name])
        for volume in self._objects.list(*_VOLUME):
            notes = mapping(volume["metadata"].get("annotations"))
            if notes.get(_MADE_BY) == PROVISIONER and volume["status"].get("phase") == "Released":
                self._remove(volume["metadata"]["name"])

    def _make(self, claim: dict[str, Any], of: dict[str, Any]) -> None:
        about = claim["metadata"]
        name = f"folder-{about['uid']}"
        path = self._folder / name
        path.mkdir(parents=True, exist_ok=True)
        # Whoever runs as some user in a pod writes here; the control plane's folder is closed.
        path.chmod(0o777)
        try:
            self._objects.create({
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "annotations": {_MADE_BY: PROVISIONER}},
                "spec": {
                    "capacity": claim["spec"]["resources"]["requests"],
                    "accessModes": claim["spec"]["accessModes"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": of["metadata"]["name"],
                    # On every machine: they share this computer's disk.
                    "local": {"path": str(path)},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}
                    ]}},
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "name": about["name"],
                        "namespace": about["namespace"],
                        "uid": about["uid"],
                    },
                },
            })  # fmt: skip
        except ApiException as error:
            if error.status != 409:  # it is there, and not bound yet
                raise

    def _remove(self, name: str) -> None:
        self._objects.delete(*_VOLUME, name)
        shutil.rmtree(self._folder / name, ignore_errors=True)
