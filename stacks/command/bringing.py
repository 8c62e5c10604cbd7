"""Brings a tenant's dataset and key ring to real machines: what in a country's cluster people do.

The dataset lies sealed in a claim of the tenant's namespace for training, the packed rings in the
secret store: that for training and serving has no key that signs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from falaj.components.catalogue.clusters import TRAINING_ENDING
from falaj.components.kubernetes._pods import USER
from falaj.engine.controlplane.objects import Objects, wait_for
from falaj.engine.controlplane.operators import write_entry
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.volumes import folder_of
from falaj.stacks.errors import StackError
from falaj.workloads.registry.keyring import VERIFIES

if TYPE_CHECKING:
    from falaj.stacks.command.project import StackFile

CLAIMS: Final = ("data", "runs")
"""Of datasets, which pods only read, and of what trainings leave."""
CLASS: Final = "falaj-files"
"""The storage class that all machines see, as the stack of the platform has it."""
SIZE: Final = "10Gi"
TRAINING: Final = "training-keys"
PUBLISHING: Final = "publishing-keys"
_SHARE: Final = 10
"""Percent of the requests that a canary gets where the stack doesn't say."""
_WAIT_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Brought:
    """What a stack of the tenant's workloads names."""

    dataset: str
    training: str
    """Entry of the ring that opens and seals, and signs nothing."""
    publishing: str
    """Entry of the ring that signs, too."""

    def into(self, file: StackFile, authority: str, verify_key: str) -> str:
        """Write it into the file of a stack of the tenant's workloads; the lines that came.

        Training jobs get the dataset and the keys. Services whose model one of them publishes
        follow the alias that it publishes under.

        Args:
            file: of the stack.
            authority: certificate (PEM) of the registry beside the machines.
            verify_key: public key (PEM) of the ring that signs.

        Raises:
            StackError: it is another kind of stack, or another tenant's.
        """
        # The models: not for what brings without a stack.
        from falaj.stacks.command.pinned import written  # noqa: PLC0415
        from falaj.stacks.settings import WorkloadsSettings  # noqa: PLC0415

        settings = file.settings()
        tenant = self.training.partition("/")[0]
        if not isinstance(settings, WorkloadsSettings) or settings.tenant != tenant:
            raise StackError(
                f"--stack: given {file.name!r}; allowed: a stack of the blueprint workloads whose "
                f"falaj:tenant is {tenant}"
            )
        data, runs = CLAIMS
        values: dict[str, Any] = {}
        followed: dict[str, str] = {}
        for name, section in settings.training_jobs.items():
            own = {
                "dataset": self.dataset, "data": data, "checkpoints": runs,
                "keySecret": self.training,
            }  # fmt: skip
            if (publication := settings.publication(section)) is not None:
                own["publish.keySecret"] = self.publishing
                own["publish.registryAuthority"] = authority
                followed[publication.model] = publication.alias
            values |= {f"trainingJobs.{name}.{key}": value for key, value in own.items()}
        for name, section in settings.inference_services.items():
            given = section.model_dump()
            at, model = f"inferenceServices.{name}", given["model"]
            values[f"{at}.keySecret"] = self.training
            if model in followed:
                share = (given["canary"] or {"share": _SHARE})["share"]
                values[f"{at}.canary"] = {
                    "model": f"{model}@{followed[model]}", "share": share,
                    "verifyKey": verify_key,
                }  # fmt: skip
        return written(file, values, dry_run=False)

    @property
    def settings(self) -> str:
        """As it stands in a stack's file."""
        data, runs = CLAIMS
        return (
            f"dataset: {self.dataset}\ndata: {data}\ncheckpoints: {runs}\n"
            f"keySecret: {self.training}\npublish: {{keySecret: {self.publishing}, …}}"
        )


def bring(files: Files, tenant: str, ring: Path, source: str, more: Sequence[str]) -> Brought:
    """Make claims, seal a dataset into one, and put the ring into the secret store.

    Args:
        files: of the control plane.
        tenant: whose namespace for training is there.
        ring: folder of the key ring, which is made where there is none.
        source: of the dataset, as the training's own command takes it.
        more: options of that command.

    Raises:
        StackError: the tenant has no namespace, or a command fails.
        EngineError: the name of an entry can't be used.
    """
    namespace = f"{tenant}{TRAINING_ENDING}"
    objects = Objects.of(str(files.kubeconfig))
    try:
        if objects.get("v1", "Namespace", namespace) is None:
            raise StackError(
                f"TENANT: given {tenant!r}, whose namespace {namespace} isn't there; allowed: a "
                "tenant of the platform that runs\n  bring it up first: falaj up --stack "
                "real-cluster --sandbox --cluster"
            )
        objects.apply([_claim(each, namespace) for each in CLAIMS], "falaj-bring")
        folder = wait_for(
            lambda: folder_of(files, objects, CLAIMS[0], namespace),
            f"the claim {CLAIMS[0]} has a volume",
            _WAIT_SECONDS,
        )
    finally:
        objects.close()
    if not ring.exists():
        _output_of("registry", "keyring", "create", "--path", str(ring))
    entries = {f"{tenant}/{TRAINING}": (), f"{tenant}/{PUBLISHING}": ("--signs",)}
    for entry, options in entries.items():
        packed = _output_of("registry", "keyring", "pack", "--path", str(ring), *options)
        write_entry(files, entry, packed.encode())
    answer: dict[str, Any] = json.loads(
        _output_of("training", "dataset", "--source", source, "--keyring", str(ring), "--output",
              str(folder), "--json", *more)
    )  # fmt: skip
    snapshot = Path(answer["path"])
    for path in (snapshot, *snapshot.rglob("*")):
        os.chown(path, USER, USER)
    training, publishing = entries
    return Brought(str(snapshot.relative_to(folder)), training, publishing)


def verify_key_of(ring: Path) -> str:
    """The public key (PEM) of what a ring signs."""
    return (ring / VERIFIES).read_text(encoding="utf-8")


def _claim(name: str, namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"accessModes": ["ReadWriteMany"], "storageClassName": CLASS,
                 "resources": {"requests": {"storage": SIZE}}},
    }  # fmt: skip


def _output_of(module: str, *words: str) -> str:
    """What a command of the workloads says. Raises StackError: it fails."""
    command = [sys.executable, "-P", "-m", f"falaj.workloads.{module}", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise StackError(done.stderr.strip().removeprefix("error: ") or f"{module} failed")
    return done.stdout.strip()
