"""Runs the containers of a rendered replica as processes, in the order of a kubelet.

Kept from the specification: commands, variables, and which container mounts which volume.
Replaced: mounted volumes by folders (those in memory by folders in memory), ports by free ones,
and ``python`` by this one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

MEMORY = Path("/dev/shm")


class Replica:
    """One replica: its volumes, and the processes of its containers."""

    def __init__(self, pod: Mapping[str, Any], root: Path, contents: Mapping[str, Path]) -> None:
        """``contents`` are the folders behind volumes that aren't the replica's own, by name."""
        self.pod = pod
        self.root = root
        self.names: dict[str, str] = {}
        """What to write for texts in commands, such as ports."""
        self._memory = Path(tempfile.mkdtemp(prefix="falaj-test-", dir=MEMORY))
        self.volumes: dict[str, Path] = {}
        for volume in pod["volumes"]:
            self.volumes[volume["name"]] = self._folder(volume, contents)
        self._running: list[subprocess.Popen[bytes]] = []

    def _folder(self, volume: Mapping[str, Any], contents: Mapping[str, Path]) -> Path:
        name = volume["name"]
        if "emptyDir" not in volume:
            return contents[name]
        in_memory = volume["emptyDir"].get("medium") == "Memory"
        folder = (self._memory if in_memory else self.root) / name
        folder.mkdir()
        # As the kubelet makes it: open to the pod's group, which new folders inherit.
        folder.chmod(0o2777)
        return folder

    def container(self, name: str) -> Mapping[str, Any]:
        return next(
            each for each in (*self.pod["initContainers"], *self.pod["containers"])
            if each["name"] == name
        )  # fmt: skip

    def prepare(self) -> None:
        """Run every container that ends before the server starts, one after the other."""
        for container in self.pod["initContainers"]:
            if container.get("restartPolicy") != "Always":
                self.run(container["name"])

    def run(self, name: str) -> str:
        """Run a container to its end, twice: the kubelet may do so; returns what it said."""
        for _ in range(2):
            done = subprocess.run(
                self.command(name), env=self.environment(name), capture_output=True, text=True,
                check=False, timeout=120, cwd=self.root,
            )  # fmt: skip
            assert done.returncode == 0, f"{name}: {done.stderr}"
        return done.stdout

    def start(self, name: str) -> subprocess.Popen[bytes]:
        """Start a container that goes on."""
        with self.log(name).open("wb") as log:
            process = subprocess.Popen(
                self.command(name), env=self.environment(name), stdout=log, stderr=log,
                cwd=self.root,
            )  # fmt: skip
        self._running.append(process)
        return process

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def command(self, name: str) -> list[str]:
        """A container's command on this machine."""
        container = self.container(name)
        program, *arguments = container["command"]
        assert program == "python", "the image's own interpreter"
        return [sys.executable, *(self.local(container, each) for each in arguments)]

    def environment(self, name: str) -> dict[str, str]:
        """Its variables, and those that the image has."""
        own = {each["name"]: each["value"] for each in self.container(name)["env"]}
        system = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd())}
        return {**system, "TMPDIR": str(self.volumes["tmp"]), **own}

    def local(self, container: Mapping[str, Any], text: str) -> str:
        """A text of a command, with the folders behind the container's mounts."""
        if "/run/falaj" not in text and not text.startswith("/package"):
            for name, here in self.names.items():
                text = text.replace(name, here)
            return text
        mounts = sorted(container["volumeMounts"], key=lambda each: -len(each["mountPath"]))
        for mount in mounts:
            path = mount["mountPath"]
            if text == path or text.startswith(f"{path}/"):
                return str(self.volumes[mount["name"]]) + text.removeprefix(path)
        # What isn't mounted isn't there: `configure` names folders of the server's alone.
        for mount in self.container("server")["volumeMounts"]:
            path = mount["mountPath"]
            if text == path or text.startswith(f"{path}/"):
                return str(self.volumes[mount["name"]]) + text.removeprefix(path)
        raise AssertionError(f"{container['name']} names {text}, which nothing mounts")

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        shutil.rmtree(self._memory, ignore_errors=True)


@contextlib.contextmanager
def replica(pod: Mapping[str, Any], root: Path, contents: Mapping[str, Path]) -> Iterator[Replica]:
    """A replica that is ended, and whose memory is given back."""
    root.mkdir()
    made = Replica(pod, root, contents)
    try:
        yield made
    finally:
        made.end()
