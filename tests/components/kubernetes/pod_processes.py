"""Runs rendered pods as processes of this machine, as a kubelet would start their container.

Kept from the specification: the command, every variable in its order with references resolved, and
what the downward API tells. Replaced: names of pods by loopback addresses (one for each pod), the
port of the rendezvous by a free one, mounted volumes by folders, and ``python`` by this one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")


@dataclass
class Machine:
    """Where pods run: folders for their claims, loopback addresses for their names."""

    folder: Path
    names: dict[str, str] = field(default_factory=dict[str, str])
    """What to write for texts in commands and variables, such as a pod's DNS name."""
    addresses: Sequence[str] = ()
    """Of the pods, by completion index; those beyond it, or all: 127.0.0.2 and so on."""

    def start(
        self, template: Mapping[str, Any], index: int, labels: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the one container of the pod with this completion index, after those before it."""
        for container in template["spec"].get("initContainers", ()):
            words, environ = self._program(container, index, labels)
            subprocess.run([sys.executable, *words], env=environ, check=True, timeout=60)
        words, environ = self.program(template, index, labels)
        with self.log(index).open("w") as log:
            return subprocess.Popen(
                [sys.executable, *words], env=environ, stdout=log, stderr=subprocess.STDOUT
            )

    def program(
        self, template: Mapping[str, Any], index: int, labels: Mapping[str, str] | None = None
    ) -> tuple[list[str], dict[str, str]]:
        """Arguments of the interpreter and the environment of the pod's container."""
        (container,) = template["spec"]["containers"]
        return self._program(container, index, labels)

    def _program(
        self, container: Mapping[str, Any], index: int, labels: Mapping[str, str] | None
    ) -> tuple[list[str], dict[str, str]]:
        told = {
            "status.podIP": dict(enumerate(self.addresses)).get(index, f"127.0.0.{index + 2}"),
            "metadata.name": f"pod-{index}",
            **{f"metadata.labels['{key}']": value for key, value in (labels or {}).items()},
            "metadata.labels['batch.kubernetes.io/job-completion-index']": str(index),
        }
        environ = self._environ(container["env"], told)
        words = [_resolved(word, environ) for word in container["command"]]
        command = [self._local(word, index) for word in words]
        assert command[0] in ("python", "python3"), "the image's own interpreter"
        # What the Job's controller adds to pods of an indexed job.
        environ.setdefault("JOB_COMPLETION_INDEX", str(index))
        here = {name: self._local(text, index) for name, text in environ.items()}
        return command[1:], {**_SYSTEM, **here}

    def log(self, index: int) -> Path:
        """What the pod of this index wrote."""
        return self.folder / f"pod-{index}.log"

    def _environ(
        self, entries: list[Mapping[str, Any]], told: Mapping[str, str]
    ) -> dict[str, str]:
        environ: dict[str, str] = {}
        for entry in entries:
            if "valueFrom" in entry:
                environ[entry["name"]] = told[entry["valueFrom"]["fieldRef"]["fieldPath"]]
            else:
                environ[entry["name"]] = _resolved(entry["value"], environ)
        return environ

    def _local(self, text: str, index: int) -> str:
        for name, here in self.names.items():
            text = text.replace(name, here)
        for mount, own in _MOUNTS.items():
            if text == mount or text.startswith(mount + "/"):
                folder = self.folder / f"{mount[1:]}{index if own else ''}"
                folder.mkdir(parents=True, exist_ok=True)
                return f"{folder}{text.removeprefix(mount)}"
        return text


#: Where volumes are mounted, and whether each pod must have one of its own here as well.
_MOUNTS = {
    "/runs": False, "/data": False, "/scratch": False, "/etc/falaj": False, "/launcher": True,
    "/home/workspace": False, "/run/falaj": False,
}  # fmt: skip
#: What the image has, and that the pods of this test have one network interface.
_SYSTEM = {
    "PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


def _resolved(text: str, environ: Mapping[str, str]) -> str:
    """Kubernetes' rule: a reference to what isn't there stays as it is."""
    return _REFERENCE.sub(lambda found: environ.get(found[1], found[0]), text)


def finish(processes: list[subprocess.Popen[bytes]], seconds: float = 150) -> list[int]:
    """Status of each; none is left."""
    try:
        return [process.wait(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
