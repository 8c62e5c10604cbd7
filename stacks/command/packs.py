"""Where the policy packs are, and how they are told what to do."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.engine.files import cache_home, replace_file
from falaj.policies.choices import PACKS

#: The folder of the packs.
POLICIES: Final = Path(__file__).resolve().parents[2] / "policies"
#: The pack that carries the rules of all others.
ALL: Final = "all"
NAMES: Final = (*PACKS, ALL)
_FILE: Final = "PulumiPolicy.yaml"


def pack_folders(packs: Sequence[str]) -> list[Path]:
    """The folders of packs by their names."""
    if set(packs) == set(PACKS):
        return [pack_for_engines(ALL)]
    return [pack_for_engines(name) for name in dict.fromkeys(packs)]


def pack_for_engines(name: str) -> Path:
    """The folder of a pack that any engine can run: one that names this environment.

    A pack's own folder names the environment of a clone. Where that isn't the one that runs this
    (a wheel's, another of somebody's choosing), a copy in the user's cache names it.

    Args:
        name: of the pack.
    """
    folder = POLICIES / name
    text = (folder / _FILE).read_text(encoding="utf-8")
    described = yaml.safe_load(text)
    named = folder / described["runtime"]["options"]["virtualenv"]
    if named.is_dir() and named.resolve() == Path(sys.prefix).resolve():
        return folder
    described["runtime"]["options"]["virtualenv"] = sys.prefix
    files = {each.name: each.read_text(encoding="utf-8") for each in folder.glob("*.*")}
    files[_FILE] = yaml.safe_dump(described, sort_keys=False)
    digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    copy = cache_home() / "packs" / digest / name
    for file, content in files.items():
        target = copy / file
        if not target.is_file() or target.read_text(encoding="utf-8") != content:
            target.parent.mkdir(parents=True, exist_ok=True)
            replace_file(target, content)
    return copy


def pack_configuration(
    *, advisory: bool, strict: bool | None, waivers: Path | None = None
) -> dict[str, Any]:
    """The configuration of packs.

    Args:
        advisory: whether they only say what they find, so that a preview goes on and all is found
            at once.
        strict: whether what can't be known fails. Default: as the stack says.
        waivers: the file of waivers. Default: as the stack says.
    """
    configuration: dict[str, Any] = {"all": "advisory"} if advisory else {}
    options = {"strict": strict, "waivers": None if waivers is None else str(waivers)}
    settings = {key: value for key, value in options.items() if value is not None}
    return configuration | ({"settings": settings} if settings else {})
