"""The packages that a team's own code needs beside Falaj's, pinned in a file beside the code.

Only wheels whose digests the file names are installed, so that nothing of theirs runs before the
code imports them. What Falaj's own environment has stays as it is, and comes first.
"""

from __future__ import annotations

import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import NormalizedName, canonicalize_name

from falaj.workloads.errors import WorkloadError, printable, some
from falaj.workloads.files import locked, replacing_folder, storage_errors

FILE: Final = "requirements.txt"
"""Its name in the folder of the code."""

MOST_PACKAGES: Final = 500

HOW: Final = (
    "write one with `uv pip compile --generate-hashes --no-emit-index-url`, as the guide to your "
    "own models shows"
)
_FOLDER: Final = "own-packages"
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_SHOWN: Final = 12
_MOST_SHOWN: Final = 80
_LAST_LINES: Final = 6
_REASONS: Final = (
    (
        re.compile(r"DO NOT MATCH THE HASHES|do not match the hashes"),
        "a package isn't the one that was pinned (its digest differs), and none was installed",
    ),
    (
        re.compile(r"No matching distribution|Could not find a version"),
        "the package index doesn't have a wheel of it for this Python, or can't be reached: check "
        "the network, or name a mirror in pip's configuration (index-url)",
    ),
    (re.compile(r"No space left|Errno 28|Disk quota"), "there is no space left on the disk"),
)


@dataclass(frozen=True)
class Package:
    """One that is pinned.

    Attributes:
        name: as it is compared, in small letters.
        version: the only one that is allowed.
        digests: SHA-256 of its wheels, in hexadecimal.
        requirement: name, extras and version, as pip takes them.
        line: where it begins in the file, from 1 on.
    """

    name: NormalizedName
    version: str
    digests: tuple[str, ...]
    requirement: str
    line: int


def parse(content: bytes, place: str) -> list[Package]:
    """Return the packages that a file pins for this Python and machine.

    Args:
        content: the file's: ``name==version --hash=sha256:…``, environment markers and comments;
            a backslash at its end continues a line.
        place: what the file is called in errors.

    Raises:
        WorkloadError: names the line: it is no requirement, not pinned to one version, has no
            digest, or is an option or an address, which could bring anything.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WorkloadError(f"{place} is no text in UTF-8 (byte {error.start}): {HOW}") from None
    found: dict[str, Package] = {}
    for number, line in _lines(text):
        package = _package(line, number, place)
        if package is None:
            continue
        before = found.setdefault(package.name, package)
        if before is not package:
            raise WorkloadError(
                f"{place}, line {number}: {package.name} is pinned a second time (line "
                f"{before.line}): keep one of them"
            )
    if len(found) > MOST_PACKAGES:
        raise WorkloadError(f"{place} pins {len(found)} packages: allowed are {MOST_PACKAGES}")
    return list(found.values())


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """The file's lines without comments, those that are continued as one; each with its number."""
    begun, parts = 0, list[str]()
    for number, raw in enumerate(text.splitlines(), 1):
        line = _COMMENT.sub("", raw).strip()
        begun = begun or number
        parts.append(line.removesuffix("\\"))
        if line.endswith("\\"):
            continue
        yield begun, " ".join(parts).strip()
        begun, parts = 0, []
    if parts:
        yield begun, " ".join(parts).strip()


def _package(line: str, number: int, place: str) -> Package | None:
    """What a line pins; None where it is empty, or for another Python or machine."""
    if not line:
        return None
    where, shown = f"{place}, line {number}", line[:_MOST_SHOWN]
    if line.startswith("-"):
        raise WorkloadError(
            f"{where}: {shown!r} is an option: allowed are pinned packages alone, name==version "
            "with --hash; where they are fetched from stands in pip's configuration (index-url)"
        )
    digests = tuple(_HASH.findall(line))
    bare = _HASH.sub("", line).strip()
    try:
        wanted = Requirement(bare)
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise WorkloadError(f"{where}: {shown!r} is no requirement ({reason}): {HOW}") from None
    pins = list(wanted.specifier)
    if wanted.url or len(pins) != 1 or pins[0].operator != "==" or "*" in pins[0].version:
        raise WorkloadError(
            f"{where}: {shown!r} isn't pinned: exactly one version is allowed (name==version), "
            f"and no address; {HOW}"
        )
    if not digests:
        raise WorkloadError(
            f"{where}: {wanted.name} has no --hash=sha256:…, by which what is fetched is known to "
            f"be what was meant: {HOW}"
        )
    if wanted.marker is not None and not wanted.marker.evaluate():
        return None
    extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
    version = pins[0].version
    requirement = f"{wanted.name}{extras}=={version}"
    return Package(canonicalize_name(wanted.name), version, digests, requirement, number)


def missing(packages: Sequence[Package], place: str, home: Path | None = None) -> list[Package]:
    """Return those that an environment lacks.

    Args:
        packages: what is wanted.
        place: what their file is called in errors.
        home: the environment's folder of packages. Default: that of Falaj's own.

    Raises:
        WorkloadError: it has another version of one, which Falaj's own code is tested with.
    """
    homes = [str(home or metadata.distribution("packaging").locate_file(""))]
    have = {
        canonicalize_name(each.name): each.version
        for each in metadata.Distribution.discover(path=homes)
    }
    wanted = [each for each in packages if each.name not in have]
    others = [
        f"{each.name} {each.version} (line {each.line}; here is {have[each.name]})"
        for each in packages
        if each.name in have and not _is(have[each.name], each)
    ]
    if others:
        raise WorkloadError(
            f"{place} pins other versions than Falaj's environment has: {some(others, _SHOWN)}. "
            "The code runs beside Falaj's: write the file again with Falaj's own as constraints "
            "(`uv pip compile … -c requirements/base.txt -c requirements/local.txt`)"
        )
    return wanted


def _is(version: str, package: Package) -> bool:
    """Whether a version is the pinned one; a local part (``+cu132``) says how it was built."""
    return Requirement(f"{package.name}=={package.version}").specifier.contains(
        version, prereleases=True
    )


def lacking(content: bytes, place: str) -> list[Package]:
    """Return what a file pins and Falaj's environment lacks; errors as `parse` and `missing`."""
    return missing(parse(content, place), place)


def provide(content: bytes, place: str) -> Path | None:
    """Return the folder that holds what Falaj's environment lacks; install it if it isn't there.

    It lies in the environment, under the digest of what is pinned and of the Python that it is
    for: the same packages are installed once, however many trainings use them.

    Args:
        content: of the file.
        place: what the file is called in errors.

    Returns:
        The folder; None: nothing is lacking.

    Raises:
        WorkloadError: see `parse` and `missing`; or they can't be fetched, or aren't what was
            pinned.
    """
    wanted = lacking(content, place)
    if not wanted:
        return None
    lines = [
        " ".join([each.requirement, *(f"--hash=sha256:{digest}" for digest in each.digests)])
        for each in sorted(wanted, key=lambda each: each.name)
    ]
    pinned = "\n".join(lines) + "\n"
    kind = f"{sys.implementation.cache_tag} {sys.platform} {platform.machine()}\n"
    digest = hashlib.sha256((kind + pinned).encode()).hexdigest()
    home = Path(sys.prefix) / _FOLDER
    folder = home / digest
    if folder.is_dir():
        return folder
    with storage_errors(home):
        home.mkdir(exist_ok=True)
    with locked(home / ".lock"):
        if not folder.is_dir():
            _install(pinned, [each.requirement for each in wanted], folder, place)
    return folder


def _install(pinned: str, names: Sequence[str], folder: Path, place: str) -> None:
    print(
        f"installing {len(names)} package(s) of {place}, once: {some(names, _SHOWN)}",
        file=sys.stderr, flush=True,
    )  # fmt: skip
    with replacing_folder(folder) as made:
        listed = made / FILE
        listed.write_text(pinned)
        ended = subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--no-input",
                "--disable-pip-version-check", "--require-hashes", "--no-deps",
                "--only-binary", ":all:", "--no-compile", "--target", str(made),
                "-r", str(listed),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if ended.returncode:
            reason = _why(ended.stdout)
            raise WorkloadError(f"the packages of {place} can't be installed: {reason}")


def _why(output: str) -> str:
    last = [printable(line.strip()) for line in output.splitlines() if line.strip()][-_LAST_LINES:]
    reason = next((words for sign, words in _REASONS if sign.search(output)), "pip says")
    return f"{reason}: {' / '.join(last)}"
