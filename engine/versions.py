"""Versions: the pinned ones of `versions.json`, and what `pulumi version` and `go version` say."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from falaj.engine.errors import EngineError

_VERSION = re.compile(
    r"v?(?P<major>\d{1,9})\.(?P<minor>\d{1,9})(?:\.(?P<patch>\d{1,9}))?"
    r"(?:-(?P<pre>[0-9A-Za-z.-]+)|(?P<go>(?:beta|rc)\d+))?(?:\+[0-9A-Za-z.-]+)?"
)


@dataclass(frozen=True)
class Version:
    """A release number; `pre` is the pre-release part ("alpha.1", "rc2"), empty for a release.

    Ordering follows semver.org 2.0 as far as a floor needs it: a pre-release comes before its
    release, and two pre-releases of the same release count as equal in rank.
    """

    major: int
    minor: int
    patch: int
    pre: str = ""

    @classmethod
    def parse(cls, text: str) -> Version:
        """Read "v3.255.0", "3.255.0-alpha.1", "1.26", "1.25rc2"; anything else is a ValueError."""
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not a version: {text.strip()[:80]!r}")
        numbers = (int(match[part] or 0) for part in ("major", "minor", "patch"))
        return cls(*numbers, pre=match["pre"] or match["go"] or "")

    def at_least(self, floor: Version) -> bool:
        """Whether this version is `floor` or newer; a pre-release of `floor` itself is older."""
        mine = (self.major, self.minor, self.patch, not self.pre)
        return mine >= (floor.major, floor.minor, floor.patch, not floor.pre)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}" + (f"-{self.pre}" if self.pre else "")


def go_version(output: str) -> Version:
    """The version in what `go version` prints: "go version go1.26.8 linux/amd64"."""
    fields = output.split()
    if len(fields) < 3 or not fields[2].startswith("go"):
        raise ValueError(f"not the output of `go version`: {output.strip()[:80]!r}")
    return Version.parse(fields[2].removeprefix("go"))


@dataclass(frozen=True)
class Pins:
    """What `versions.json` pins: the engine's release, its checksums, and Go for a build."""

    version: Version
    minimum: Version
    release_site: str
    archive: str
    checksum_file: str
    sha256: dict[str, str]
    go_minimum: Version
    go_toolchain: Version
    go_package: str
    go_version_variable: str


@cache
def pins() -> Pins:
    """Read the pinned versions that ship with this package."""
    path = Path(__file__).with_name("versions.json")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        engine, go = data["engine"], data["go"]
        return Pins(
            version=Version.parse(engine["version"]),
            minimum=Version.parse(engine["minimum_version"]),
            release_site=engine["release_site"],
            archive=engine["archive"],
            checksum_file=engine["checksum_file"],
            sha256=dict(engine["sha256"]),
            go_minimum=Version.parse(go["minimum_version"]),
            go_toolchain=Version.parse(go["toolchain"]),
            go_package=go["package"],
            go_version_variable=go["version_variable"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(
            f"{path} is damaged ({error}); restore it from the repository and run again"
        ) from error
