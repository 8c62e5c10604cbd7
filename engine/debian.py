"""Debian's packages: unpacked into the user's cache, or installed where only that will do.

``python -m falaj.engine.debian ensure`` finds the programs that tests ask for a judgement on the
PATH, else unpacks theirs: nothing of them is installed, and no service is started.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import cache_home, exclusive
from falaj.engine.progress import to_stderr

#: Package by program. The programs are linked against nothing but the C library.
PACKAGES: Final = {"prometheus": "prometheus", "promtool": "prometheus"}
_SECONDS: Final = 600


def program(name: str) -> Path:
    """A program of `PACKAGES`: the one on the PATH, else the package's, unpacked if need be.

    Raises EngineError: it is neither there nor can it be had from here.
    """
    if found := shutil.which(name):
        return Path(found)
    package = PACKAGES[name]
    try:
        [folder] = unpacked([package])
    except OSError as error:
        raise explain_os_error(error, f"unpacking Debian's package {package}") from error
    return folder / "usr/bin" / name


def unpacked(packages: Sequence[str]) -> list[Path]:
    """The folders of packages' contents, in that order; what is missing is fetched.

    Raises EngineError: one can't be had.
    """
    named = ", ".join(packages)
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise EngineError(
            f"{named}: this machine has no packages of Debian; install what is missing so that "
            "its programs are on the PATH"
        )
    above = cache_home() / "debian"
    above.mkdir(parents=True, exist_ok=True)
    with exclusive(above / "packages.lock", to_stderr, named):
        files = _files(packages, above)
        folders = {package: above / files[package].removesuffix(".deb") for package in packages}
        missing = [package for package, folder in folders.items() if not folder.is_dir()]
        if missing:
            with tempfile.TemporaryDirectory(prefix="unfinished-", dir=above) as scratch:
                # As root, apt would have another user fetch, who may not write here.
                fetch = ["apt-get", "-o", "APT::Sandbox::User=root", "download", *missing]
                _run(fetch, scratch)
                for package in missing:
                    name = folders[package].name
                    _run(["dpkg-deb", "-x", f"{name}.deb", name], scratch)
                    (Path(scratch) / name).rename(folders[package])
    return list(folders.values())


def install(packages: Sequence[str]) -> None:
    """Install packages into the system, without what they merely recommend.

    Raises EngineError: this machine has no packages of Debian, we aren't root, or apt fails.
    """
    command = ["apt-get", "install", "-y", "--no-install-recommends", *packages]
    if not shutil.which("apt-get") or os.geteuid() != 0:
        raise EngineError(f"on Debian, as root: apt-get install {' '.join(packages)}")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Lists that can't be fetched may still be there from before.
    with contextlib.suppress(EngineError):
        _run(["apt-get", "update"], environment=quiet)
    _run(command, environment=quiet)


def _files(packages: Sequence[str], folder: Path) -> dict[str, str]:
    """The name of the file that apt would fetch into a folder, by package: a version is in it."""
    ask = ["apt-get", "download", "--print-uris", *packages]
    try:
        answer = _run(ask, folder)
    except EngineError:
        # A new machine has no lists of packages; who isn't root can't get them.
        if os.geteuid() != 0:
            raise
        _run(["apt-get", "update"])
        answer = _run(ask, folder)
    # Each line: the address, the name, the size, and a hash; in an order of apt's own.
    names = (line.split()[1] for line in answer.splitlines())
    found = {name.partition("_")[0]: name for name in names}
    if missing := [each for each in packages if each not in found]:
        raise EngineError(f"apt knows no file of {', '.join(missing)}")
    return found


def _run(
    command: Sequence[str],
    folder: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
    )
    if done.returncode:
        raise EngineError(f"{' '.join(command)} failed: {done.stderr.strip()[-500:]}")
    return done.stdout


def main(arguments: Sequence[str]) -> int:
    """The command line: ``ensure``. Prints the programs' paths."""
    if list(arguments) != ["ensure"]:
        sys.stderr.write("usage: python -m falaj.engine.debian ensure\n")
        return 2
    try:
        for name in PACKAGES:
            sys.stdout.write(f"{program(name)}\n")
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
