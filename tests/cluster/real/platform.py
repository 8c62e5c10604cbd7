"""The shipped platform in a small size on real machines, and the operators that can't be had here.

cert-manager and External Secrets aren't Go modules that can be built: `Operators` does what they
do, by the objects that our components render for them. Everything else that runs is the real one.
"""

from __future__ import annotations

import base64
import contextlib
import os
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
from falaj.engine.controlplane import ControlPlane, bases, binaries
from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.registry import with_libraries
from falaj.engine.controlplane.volumes import PROVISIONER
from tests.cluster.real.realm import HOST, Realm
from tests.stacks.conftest import ROOT, Project

CONTROLLERS: Final = ("kueue", "jobset")
IMAGES: Final = ("falaj-inference", "falaj-training-cpu")
FLAVOR: Final = "cpu-x86-64"
#: What needs programs that can't be had as Go modules, or machines that aren't here.
LEFT_OUT: Final = (
    "cert-manager", "external-secrets", "monitoring", "gpu-operator", "network-operator",
    "trainer", "envoy-gateway", "istio", "keda", "kserve", "opencost", "velero",
)  # fmt: skip
DEFINITIONS: Final = (
    "gateway-api", "cert-manager", "prometheus-operator", "keda", "external-secrets",
)  # fmt: skip
_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
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
        lock = yaml.safe_load((self.project.root / "images.lock.yaml").read_text())["images"]
        return f"{HOST}/falaj/{images()[name].mirror}@{lock[name]['digest']}"


def shipped(stack: str) -> dict[str, Any]:
    """The settings of a shipped stack, for images of these tests."""
    text = (ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    config: dict[str, Any] = yaml.safe_load(text)["config"]
    return {**config, "falaj:images": "images.lock.yaml", "falaj:environment": "development"}


def cluster_settings() -> dict[str, Any]:
    """`onprem-cluster`, small: two machines, two tenants, folders for disks."""
    config = shipped("onprem-cluster")
    config.pop("falaj:gateway")
    folders = {"provisioner": PROVISIONER, "parameters": {}, "evidence": "folders, for tests"}
    return {
        **config,
        "falaj:installation": {
            "controlPlaneCidrs": ["172.31.0.0/24", "10.96.0.0/16"],
            "endpointCidrs": ["172.31.0.0/24"],
            "addons": dict.fromkeys(LEFT_OUT, False),
        },
        "falaj:storage": {"classes": {"falaj-block": folders, "falaj-files": folders}},
        "falaj:queues": {
            "pools": {FLAVOR: {"nodes": 2, "cpu": 4, "memoryGib": 16}},
            "tenants": {"acme": {"quotas": {FLAVOR: {"cpu": 8, "memoryGib": 32}}}},
        },
        "falaj:tenants": {
            "acme": {
                "training": {"cpu": 8, "memoryGib": 32},
                "serving": {"cpu": 8, "memoryGib": 32},
            },
            "bank": {"serving": {"cpu": 1, "memoryGib": 4}},
        },
        "falaj:policies": {**config["falaj:policies"], "waivers": "stacks/waivers/real.yaml"},
    }


def write_waivers(root: Path) -> None:
    """Those of the platform, and one for what is without cert-manager."""
    waivers = yaml.safe_load((ROOT / "stacks/waivers/platform.yaml").read_text(encoding="utf-8"))
    waivers["waivers"].append({
        "id": "REAL-01",
        "rule": "kubernetes-api-service-tls",
        "urn": "urn:pulumi:*::falaj::*$kubernetes:*:APIService::platform-kueue:*",
        "reason": "without cert-manager Kueue signs its certificate itself",
        "approver": "platform@example.ae",
        "expires": "2027-11-15",
    })  # fmt: skip
    (root / "stacks/waivers/real.yaml").write_text(yaml.safe_dump(waivers))


def push_images(realm: Realm, project: Project, folder: Path) -> None:
    """Build our images on Debian's packages, push them and the controllers, and pin them all."""
    registry = realm.plane.real.registry
    built = binaries.ensure(CONTROLLERS)
    digests = {
        name: registry.push_program(
            f"falaj/{images()[name].mirror}",
            with_libraries("/manager", Path(built[name]) / name),
            ["/manager"],
        )
        for name in CONTROLLERS
    }
    path = {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]}
    given: list[str] = []
    for name in bases.PACKAGES:
        digest = registry.push(f"falaj/{name}", bases.layer(name), path)
        given += ["--base", f"{name}={registry.address}/falaj/{name}@{digest}"]
    folder.mkdir()
    done = subprocess.run(
        [
            sys.executable, "-m", "falaj.stacks.command", "images", "build", *IMAGES, *given,
            "--tool", "buildah", "--out", str(folder / "out"),
            "--push", f"{registry.address}/falaj", "--stack", "real-cluster",
        ],
        cwd=project.root, env={**project.environment, **_builder(folder)},
        capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.split(": ") for line in (done.stdout + done.stderr).splitlines()]
    digests |= {line[0]: line[1] for line in said if line[0] in IMAGES and "sha256:" in line[1]}
    assert set(digests) == {*CONTROLLERS, *IMAGES}, done.stdout + done.stderr
    lock = {
        name: {
            "reference": f"{images()[name].mirror}:{images()[name].tag}",
            "digest": digest,
            "seen": "2026-11-24",
        }
        for name, digest in digests.items()
    }
    text = yaml.safe_dump({"images": lock, "charts": {}})
    (project.root / "images.lock.yaml").write_text(text)


def _builder(folder: Path) -> dict[str, str]:
    """Variables of a builder that keeps all it has in a folder."""
    storage = folder / "storage.conf"
    storage.write_text(
        f'[storage]\ndriver = "overlay"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n'
    )
    return {
        "CONTAINERS_STORAGE_CONF": str(storage),
        "BUILDAH_ISOLATION": "chroot",
    }


def trusting(folder: Path, plane: ControlPlane) -> dict[str, str]:
    """Variables of programs that trust this system's authorities, and the control plane's."""
    bundle = folder / "authorities.pem"
    system = Path(os.environ.get("SSL_CERT_FILE", _CERTIFICATES))
    parts = [each.read_text() for each in (system, plane.files.authority) if each.exists()]
    bundle.write_text("\n".join(parts))
    return {"SSL_CERT_FILE": str(bundle)}


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
        names = tuple(spec.get("dnsNames", ())) or (spec["commonName"],)
        pair = self._authority.server(f"operator-{name}", names)
        files = {
            "tls.crt": pair.certificate,
            "tls.key": pair.key,
            "ca.crt": self._plane.files.authority,
        }
        return {
            "type": "kubernetes.io/tls",
            "labels": spec["secretTemplate"]["labels"],
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


def packed(project: Project, ring: Path) -> str:
    """A key ring, as its entry in the secret store has it."""
    return module(project, "registry", "keyring", "pack", "--path", str(ring))


def token(project: Project, issuer: str, audience: str) -> str:
    """A token of a caller."""
    key = str(project.site / "keyring" / "tokens.pem")
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
