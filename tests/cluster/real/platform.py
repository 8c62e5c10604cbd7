"""The shipped platform in a small size on real machines, and the operators that can't be had here.

cert-manager and External Secrets aren't Go modules that can be built: `Operators` does what they
do, by the objects that our components render for them. Everything else that runs is the real one.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from falaj.components.kubernetes.bill_of_materials import images
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.certificates import Authority
from tests.cluster.real.realm import HOST, Realm
from tests.stacks.conftest import ROOT, Project

STACK: Final = "real-cluster"
"""The stack whose template ships for real machines."""
FLAVOR: Final = "cpu-x86-64"
_BUILD_SECONDS: Final = 1800


@dataclass
class Platform:
    """A project whose stacks go to a control plane with real machines."""

    realm: Realm
    project: Project
    """Its own stack is one of this machine, whose model is published."""
    folder: Path

    @property
    def plane(self) -> ControlPlane:
        return self.realm.plane

    @property
    def registry(self) -> str:
        """As this computer reaches it; machines know it as `HOST`."""
        return f"{self.plane.real.registry.address}/falaj"

    @property
    def lock(self) -> Path:
        """Where digests of images are."""
        return self.project.root / "images.real-cluster.lock.yaml"

    def write(self, stack: str, config: Mapping[str, Any]) -> None:
        """Write a stack's file."""
        file = self.project.root / "stacks" / f"Pulumi.{stack}.yaml"
        file.write_text(yaml.safe_dump({"config": dict(config)}))

    def falaj(self, *words: str, seconds: float = 560) -> str:
        """Run a command, which must succeed; what it said."""
        done = self.project.falaj(*words, seconds=seconds)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def up(self, stack: str) -> str:
        """Bring a stack up in the cluster; what it said."""
        kubeconfig = str(self.plane.kubeconfig)
        return self.falaj("up", "--sandbox", "--cluster", kubeconfig, "--stack", stack)

    def down(self, stack: str) -> str:
        """Take a stack away again; what it said."""
        kubeconfig = str(self.plane.kubeconfig)
        return self.falaj("down", "--sandbox", "--cluster", kubeconfig, "--stack", stack)

    def image(self, name: str) -> str:
        """The reference of an image of ours, as pods name it."""
        lock = yaml.safe_load(self.lock.read_text())["images"]
        return f"{HOST}/falaj/{images()[name].mirror}@{lock[name]['digest']}"


def workloads(platform: Platform, **sections: Any) -> dict[str, Any]:
    """The settings of a team's shipped stack, with these sections and the images that are here."""
    text = (ROOT / "stacks" / "Pulumi.onprem-workloads.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text)["config"]
    for name in ("trainingJobs", "inferenceServices"):
        config.pop(f"falaj:{name}")
    own = {f"falaj:{name}": section for name, section in sections.items()}
    about = {"falaj:images": platform.lock.name, "falaj:environment": "development"}
    return {**config, **about, **own}


def load_images(platform: Platform) -> None:
    """Have what pods run built, pushed and pinned, as who started the cluster does."""
    folder = str(platform.plane.files.folder)
    words = ("cluster", "load", "--folder", folder, "--stack", STACK)
    said = platform.falaj(*words, seconds=_BUILD_SECONDS)
    assert f"made stacks/Pulumi.{STACK}.yaml" in said
    assert f"4 digests written to {platform.lock}" in said
    again = platform.falaj(*words)
    assert again.count("is there: sha256:") == 4, again
    assert "nothing had to be pushed" in again
    assert "building" not in again


class Operators:
    """What cert-manager and External Secrets do: secrets for the objects that ask for them."""

    def __init__(self, plane: ControlPlane, entries: Mapping[str, str]) -> None:
        """``entries`` is the secret store: values by name, in base64."""
        self._plane = plane
        self._entries = entries
        self._authority = Authority(plane.files.certificates)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Operators:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(0.5):
            with contextlib.suppress(ApiException, HTTPError):
                for each in self._plane.objects.list("cert-manager.io/v1", "Certificate"):
                    self._once(each, each["spec"]["secretName"], self._certificate)
                for each in self._plane.objects.list("external-secrets.io/v1", "ExternalSecret"):
                    self._once(each, each["spec"]["target"]["name"], self._entry)

    def _once(
        self, of: dict[str, Any], name: str, make: Callable[[dict[str, Any], str], dict[str, Any]]
    ) -> None:
        namespace = of["metadata"]["namespace"]
        if self._plane.objects.get("v1", "Secret", name, namespace) is None:
            about = {"name": name, "namespace": namespace}
            secret = {"apiVersion": "v1", "kind": "Secret", **make(of, name)}
            secret["metadata"] = {**about, "labels": secret.pop("labels")}
            self._plane.apply([secret])

    def _certificate(self, of: dict[str, Any], name: str) -> dict[str, Any]:
        spec = of["spec"]
        file = f"operator-{of['metadata']['namespace']}-{name}"
        if spec.get("dnsNames"):
            pair = self._authority.server(file, tuple(spec["dnsNames"]))
        else:
            pair = self._authority.client(spec["commonName"], file=file)
        files = {
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "ca.crt": self._plane.files.authority,
        }
        return {
            "type": "kubernetes.io/tls",
            "labels": spec.get("secretTemplate", {}).get("labels", {}),
            "data": {
                key: base64.b64encode(path.read_bytes()).decode() for key, path in files.items()
            },
        }

    def _entry(self, of: dict[str, Any], name: str) -> dict[str, Any]:
        [wanted] = of["spec"]["data"]
        return {
            "labels": of["metadata"]["labels"],
            "data": {wanted["secretKey"]: self._entries[wanted["remoteRef"]["key"]]},
        }


def packed(project: Project, ring: Path, *more: str) -> str:
    """A key ring, as its entry in the secret store has it."""
    return module(project, "registry", "keyring", "pack", "--path", str(ring), *more)


def token(project: Project, ring: Path, issuer: str, audience: str) -> str:
    """A token of a caller, by a key ring that makes tokens."""
    key = str(ring / "tokens.pem")
    return module(
        project, "inference", "token", "--key", key, "--issuer", issuer, "--audience", audience,
        "--subject", "scoring", "--scope", "predict",
    )  # fmt: skip


def module(project: Project, name: str, *words: str) -> str:
    """What a command of the workloads says."""
    command = [sys.executable, "-m", f"falaj.workloads.{name}", *words]
    done = subprocess.run(
        command, cwd=project.root, env=project.environment, capture_output=True, text=True,
        check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def tenants_pod(
    pod: dict[str, Any], *, cpu: str = "200m", memory: str = "256Mi"
) -> dict[str, Any]:
    """Give a pod what the platform's policies and quotas ask of a tenant's."""
    spec = pod["spec"]
    spec["nodeSelector"] = {"topology.kubernetes.io/region": HOST.split(".")[1]}
    spec["priorityClassName"] = "falaj-normal"
    spec["restartPolicy"] = "Never"
    size = {"cpu": cpu, "memory": memory, "ephemeral-storage": "256Mi"}
    spec["containers"][0]["resources"] = {"requests": size, "limits": size}
    for volume in spec["volumes"]:
        if "emptyDir" in volume:
            volume["emptyDir"]["sizeLimit"] = "64Mi"
    return pod


def claims(namespace: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Claims of folders that all machines see."""
    return [
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": "falaj-files",
                     "resources": {"requests": {"storage": "1Gi"}}},
        }
        for name in names
    ]  # fmt: skip
