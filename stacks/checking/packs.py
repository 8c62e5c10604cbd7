"""What judged: the packs and the digest of everything that they are made of."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml

from falaj.policies.reports.result import PackDigest
from falaj.stacks.command.packs import POLICIES

#: Parts of `policies/` that rules are made of, whichever pack carries them.
_SHARED = ("model", "reading", "server", "controls")
_SUFFIXES = (".py", ".yaml", ".json")


def digests(names: Iterable[str]) -> list[PackDigest]:
    """Name, version and SHA-256 of packs by the names of their folders."""
    return [_digest(name) for name in names]


def _digest(name: str) -> PackDigest:
    folder = POLICIES / name
    described = yaml.safe_load((folder / "PulumiPolicy.yaml").read_text(encoding="utf-8"))
    parts = [folder, POLICIES / "rules" / name, *(POLICIES / each for each in _SHARED)]
    files = [path for part in parts for path in part.rglob("*") if path.suffix in _SUFFIXES]
    files += POLICIES.glob("*.py")
    digest = hashlib.sha256()
    for path in sorted(set(files)):
        digest.update(path.relative_to(POLICIES).as_posix().encode() + b"\0")
        digest.update(_digest_of(path))
    return PackDigest(
        f"falaj-{name.replace('_', '-')}", str(described["version"]), digest.hexdigest()
    )


@cache
def _digest_of(path: Path) -> bytes:
    # Every pack has the shared files. The same on every system: git may write other line ends.
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).digest()
