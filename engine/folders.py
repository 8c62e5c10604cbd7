"""Where Falaj keeps things on the user's disk."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def _home(environ: Mapping[str, str], own: str, base: str, default: str) -> Path:
    if given := environ.get(own):
        return Path(given).expanduser().absolute()
    # The XDG base directory specification: a relative path in these variables is to be ignored.
    above = Path(environ.get(base, ""))
    return (above if above.is_absolute() else Path.home() / default) / "falaj"


def data_home(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of state and secrets.

    $FALAJ_HOME, else $XDG_DATA_HOME/falaj, else ~/.local/share/falaj.
    """
    return _home(environ or os.environ, "FALAJ_HOME", "XDG_DATA_HOME", ".local/share")


def cache_home(environ: Mapping[str, str] | None = None) -> Path:
    """Folder of things that can be made again.

    $FALAJ_CACHE, else $XDG_CACHE_HOME/falaj, else ~/.cache/falaj.
    """
    return _home(environ or os.environ, "FALAJ_CACHE", "XDG_CACHE_HOME", ".cache")


#: The name of Falaj's own project, whose stacks lie where one machine's always did.
OWN_PROJECT = "falaj"


def stack_home(project: str, stack: str, environ: Mapping[str, str] | None = None) -> Path:
    """Folder of what a stack on this machine keeps: keys, data, models, its server's files."""
    home = data_home(environ)
    if project == OWN_PROJECT:
        return home / "stacks" / stack
    return home / "projects" / project / stack


def make_private(folder: Path) -> Path:
    """Make `folder` (0700) unless it is there; its missing parents get the usual mode."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder
