"""The shipped platform in a small size on real machines, as a page's commands make it.

What cert-manager and External Secrets do, the control plane does: they can't be built here.
Everything else that runs is the real one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.components.kubernetes.bill_of_materials import images
from falaj.engine.controlplane import ControlPlane, operators
from tests.cluster.real.realm import HOST, Realm
from tests.newcomer.machine import Machine
from tests.stacks.conftest import ROOT, Project

STACK: Final = "real-cluster"
"""The stack whose template ships for real machines."""
FLAVOR: Final = "cpu-x86-64"


@dataclass
class Platform:
    """A project whose stacks go to a control plane with real machines."""

    realm: Realm
    machine: Machine
    """Where the page's commands were typed: a clone, an environment and a home of their own."""
    project: Project
    """The same clone and home, for this environment's `falaj`; its own stack is one of this
    machine, whose model is published."""
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

    def read(self, stack: str) -> dict[str, Any]:
        """What a stack's file says."""
        file = self.project.root / "stacks" / f"Pulumi.{stack}.yaml"
        config: dict[str, Any] = yaml.safe_load(file.read_text())["config"]
        return config

    def falaj(self, *words: str) -> str:
        """Run a command, which must succeed; what it said."""
        done = self.project.falaj(*words, seconds=560)
        assert done.returncode == 0, done.stdout
        return done.stdout

    def up(self, stack: str) -> str:
        """Bring a stack up in the cluster; what it said."""
        kubeconfig = str(self.plane.kubeconfig)
        return self.falaj("up", "--sandbox", "--cluster", kubeconfig, "--stack", stack)

    def preview(self, stack: str) -> str:
        """What `up` would change of a stack in the cluster."""
        kubeconfig = str(self.plane.kubeconfig)
        return self.falaj("preview", "--sandbox", "--cluster", kubeconfig, "--stack", stack)

    def down(self, stack: str) -> str:
        """Take a stack away again; what it said."""
        kubeconfig = str(self.plane.kubeconfig)
        return self.falaj("down", "--sandbox", "--cluster", kubeconfig, "--stack", stack)

    def bring(self, tenant: str, ring: Path) -> str:
        """Bring a tenant's key ring and a sealed dataset; the dataset's name."""
        of_no_stack = replace(self.project, stack="")
        done = of_no_stack.falaj("cluster", "bring", tenant, "--keyring", str(ring))
        assert done.returncode == 0, done.stdout
        said = done.stdout
        assert f"keySecret: {tenant}/training-keys" in said
        return str(yaml.safe_load(said)["dataset"])

    @property
    def issuer(self) -> str:
        """The certificate of who issued those of services."""
        return operators.issuer(self.plane.files).certificate.read_text()

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
