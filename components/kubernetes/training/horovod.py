"""Horovod without ssh and without MPI, in an image of a team's own.

Kubeflow's MPI operator starts processes by ssh: it wants keys in every pod, a server that listens
for shells, and in its images root or ``SYS_CHROOT`` for it, none of which a pod of the restricted
standard has. Horovod's Gloo controller needs neither: each machine starts its own processes with
the variables that tell them their ranks, and they meet at a rendezvous that the pod of index 0
serves. Data of GPUs goes through NCCL, if the image's Horovod was built with
``HOROVOD_GPU_OPERATIONS=NCCL``.

The launcher is Falaj's (workloads/horovod): an init container copies it, as one file of the
standard library alone, to where the team's image finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from falaj.components.kubernetes.training import environment
from falaj.components.kubernetes.training.specification import TrainingJobSpec

LAUNCHER_IMAGE: Final = "falaj-inference"
"""The smallest of Falaj's images: torch isn't needed to copy a file."""
MOST_PROCESSES: Final = 256
"""As workloads/horovod/world.py has it: each process talks to every other one."""
_FOLDER: Final = "/launcher"
_FILE: Final = f"{_FOLDER}/horovod.pyz"


def command(spec: TrainingJobSpec, host: str, program: Sequence[str]) -> list[str]:
    """What each pod runs: the launcher, which starts the program in each process.

    Args:
        spec: the job.
        host: DNS name of the pod that serves the rendezvous.
        program: the team's, with its arguments.
    """
    return [
        "python3", _FILE, "run",
        "--nodes", str(spec.nodes),
        "--processes", str(spec.run.size.processes),
        "--index", "$(NODE_RANK)",
        "--rendezvous", f"{host}:{environment.RENDEZVOUS_PORT}",
        "--address", "$(POD_IP)",
        "--attempt", "$(RESTART_ATTEMPT)",
        "--grace-seconds", "$(FALAJ_GRACE_SECONDS)",
        "--", *program,
    ]  # fmt: skip


def add_launcher(pod: dict[str, Any], image: str) -> None:
    """Add to a pod's template what brings the launcher into it.

    Args:
        pod: the template, which is changed.
        image: Falaj's, with its digest.
    """
    spec = pod["spec"]
    (container,) = spec["containers"]
    size = {"cpu": "250m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    spec["initContainers"] = [
        {
            "name": "launcher",
            "image": image,
            "command": ["python", "-m", "falaj.workloads.horovod", "pack", _FILE],
            "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
            "resources": {"requests": dict(size), "limits": dict(size)},
            "securityContext": dict(container["securityContext"]),
            "volumeMounts": [{"name": "launcher", "mountPath": _FOLDER}],
        }
    ]
    container["volumeMounts"].append({"name": "launcher", "mountPath": _FOLDER, "readOnly": True})
    spec["volumes"].append({"name": "launcher", "emptyDir": {"sizeLimit": "8Mi"}})
