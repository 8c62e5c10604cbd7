"""The wheels of an image: what a hashed requirement file pins for its machine, fetched by pip."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.markers import InvalidMarker, Marker

from falaj.engine.guard import guarded
from falaj.stacks.errors import StackError

PYTHON: Final = "3.11"
"""The interpreter's minor version in all bases: Debian 12's, and the requirement files'."""
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Processors by the name that images have for them."""
#: Tags of the manylinux platforms that Debian 12's glibc 2.36 satisfies: PEP 600.
_GLIBC: Final = (36, 35, 34, 31, 28, 27, 26, 24, 17, 12, 5)
_SECONDS: Final = 3600
_PIN: Final = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(\[[^]]*\])?==(?P<version>[^ ;\\]+)(?P<rest>.*)$"
)
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})(?= |$)")


@dataclass(frozen=True)
class Wheel:
    """One pinned wheel."""

    name: str
    version: str
    hashes: tuple[str, ...]
    """SHA-256 of its files, of which pip takes the one for the machine."""


def pinned(path: Path, machine: str) -> list[Wheel]:
    """The wheels that a requirement file pins for Linux on ``machine``, ``amd64`` or ``arm64``.

    Raises:
        StackError: a line isn't pinned, has no hash, or a marker that can't be read.
    """
    processor = MACHINES[machine]
    target = {
        "implementation_name": "cpython",
        "implementation_version": f"{PYTHON}.0",
        "os_name": "posix",
        "platform_machine": processor,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{PYTHON}.0",
        "python_version": PYTHON,
        "sys_platform": "linux",
    }
    text = re.sub(r"\\\n", " ", path.read_text(encoding="utf-8"))
    found: list[Wheel] = []
    for line in text.splitlines():
        bare = re.split(r"(?:^|\s)#", line)[0].strip()
        if not bare:
            continue
        match = _PIN.match(bare)
        hashes = _HASH.findall(bare)
        if match is None or not hashes:
            raise StackError(
                f"{path.name}: given {bare[:60]!r}; allowed: name==version with --hash=sha256:…, "
                "as `make lock` writes it"
            )
        marker = match["rest"].split("--hash")[0].strip().removeprefix(";").strip()
        try:
            wanted = not marker or Marker(marker).evaluate(target)
        except InvalidMarker as error:
            raise StackError(f"{path.name}: {match['name']}: {error}") from None
        if wanted:
            found.append(Wheel(match["name"], match["version"], tuple(hashes)))
    return found


def as_requirements(wheels: Sequence[Wheel]) -> str:
    """A requirement file of wheels, with their hashes."""
    return "".join(
        " \\\n    ".join((f"{each.name}=={each.version}", *(f"--hash=sha256:{value}"
                                                            for value in each.hashes)))
        + "\n"
        for each in wheels
    )  # fmt: skip


def fetch(requirements: Path, target: Path, machine: str, source: Path | None) -> None:
    """Let pip fetch wheels, each checked against its hash.

    Args:
        requirements: what `as_requirements` wrote.
        target: the folder they are put in; made here.
        machine: ``amd64`` or ``arm64``.
        source: a folder with wheels. Default: pip's own index.

    Raises:
        StackError: pip could not get one, or its hash differs.
    """
    target.mkdir()
    platforms = [f"manylinux_2_{minor}_{MACHINES[machine]}" for minor in _GLIBC]
    platforms.append(f"manylinux2014_{MACHINES[machine]}")
    options = [part for each in platforms for part in ("--platform", each)]
    for abi in (f"cp{PYTHON.replace('.', '')}", "abi3", "none"):
        options += ["--abi", abi]
    if source is not None:
        options += ["--no-index", "--find-links", str(source.resolve())]
    with tempfile.TemporaryDirectory(prefix="falaj-pip-") as folder:
        _run([sys.executable, "-m", "venv", folder], "making an environment for pip")
        command = [
            *(f"{folder}/bin/python", "-m", "pip", "download", "--quiet"),
            *("--disable-pip-version-check", "--require-hashes", "--no-deps"),
            *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
            *(*options, "--dest", str(target), "--requirement", str(requirements)),
        ]
        _run(command, "getting wheels")


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(
            guarded(command), capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise StackError(f"{what} took longer than {_SECONDS // 60} minutes") from None
    if done.returncode != 0:
        output = "\n".join((done.stdout + done.stderr).strip().splitlines()[-6:])
        raise StackError(
            f"{what} failed:\n{output}\n"
            "without an index in reach, give a folder with the wheels: --wheels FOLDER"
        )
