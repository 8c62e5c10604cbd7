"""``falaj engine ensure | env | doctor``: the engine, what it needs, and what is missing."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable

import click

from falaj.engine.backend import OWN_BACKEND, OWN_PASSPHRASE
from falaj.engine.commands import run
from falaj.engine.errors import EngineError
from falaj.engine.files import cache_home, data_home
from falaj.engine.gobuild import find_go
from falaj.engine.install import (
    engine_home,
    ensure_engine,
    installed_engine,
    kept_engine,
    release_site,
)
from falaj.engine.launch import additions
from falaj.engine.launchers import vendor_host
from falaj.engine.progress import size
from falaj.engine.versions import pins


@click.group()
def engine() -> None:
    """The Pulumi engine that is used, and what it needs."""


@engine.command()
@click.option("--json", "as_json", is_flag=True, help="Print the engine as one JSON object.")
def ensure(as_json: bool) -> None:
    """Have a Pulumi engine, getting one if need be."""
    found = ensure_engine()
    if as_json:
        fields = vars(found) | {
            "path": str(found.path),
            "bin_dirs": [str(folder) for folder in found.bin_dirs],
        }
        click.echo(json.dumps(fields))
    else:
        click.echo(
            f"pulumi {found.version} ({found.source}) at {found.path}, "
            f"Python language host: {found.language_host}"
        )


@engine.command()
def env() -> None:
    """Print shell exports with which plain `pulumi` works; no secrets are in them."""
    for name, value in additions(ensure_engine()).items():
        click.echo(f"export {name}={shlex.quote(value)}")


@engine.command()
def doctor() -> int:
    """Say what is there, what is not, and what to do."""
    return _examine()


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 done, 1 the doctor found something, 2 it cannot be done."""
    return run(engine, "falaj engine", arguments)


if __name__ == "__main__":
    sys.exit(main())


# Look at everything the engine depends on, change nothing, and say what to do.

NEEDED_BYTES = 3_500_000_000
"""A build with an empty Go cache takes this much: 1.5 GB of modules, 1.6 GB of build cache."""


def _examine() -> int:
    """Print one line per check; 0 when an engine is there or can be had, else 1."""
    ready, lines = _engine()
    for mark, text in [*lines, _python(), _backend(), _passphrase(), _space()]:
        print(f"{mark:5} {text}")
    return 0 if ready else 1


def _engine() -> tuple[bool, list[tuple[str, str]]]:
    lines: list[tuple[str, str]] = []

    def note(line: str) -> None:
        lines.append(("note", line))

    found = installed_engine(note)
    kept = kept_engine(engine_home())
    if found or kept:
        path = found[0] if found else (kept[0] if kept else engine_home())
        lines.append(("ok", f"engine: {path} ({'installed' if found else 'kept in the cache'})"))
        host = vendor_host(path)
        lines.append(("ok", f"Python language host: {host or 'our own'}"))
        return True, lines
    lines.append(("note", f"engine: none yet; pulumi {pins().version} would be got"))
    site = _answer(release_site)
    lines.append((site[0], f"release site: {site[1]}"))
    go = _answer(lambda: "{} (Go {})".format(*find_go()))
    lines.append((go[0], f"Go for a build: {go[1]}"))
    return "ok" in (site[0], go[0]), lines


def _answer(question: Callable[[], str]) -> tuple[str, str]:
    try:
        return "ok", question()
    except EngineError as error:
        return "no", str(error)


def _python() -> tuple[str, str]:
    return "ok", f"Python: {sys.executable} ({sys.version.split()[0]})"


def _backend() -> tuple[str, str]:
    chosen = next((name for name in OWN_BACKEND if name in os.environ), None)
    return "ok", f"backend: {'yours, by ' + chosen if chosen else data_home() / 'backend'}"


def _passphrase() -> tuple[str, str]:
    chosen = next((name for name in OWN_PASSPHRASE if name in os.environ), None)
    if chosen:
        return "ok", f"passphrase: yours, by {chosen}"
    path = data_home() / "passphrase"
    if not path.exists():
        return "ok", f"passphrase: {path}, made on first use"
    if path.stat().st_mode & 0o077:
        return "no", f"passphrase: {path} can be read by others; `chmod 600` it"
    return "ok", f"passphrase: {path}"


def _space() -> tuple[str, str]:
    folder = cache_home()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    mark = "ok" if free >= NEEDED_BYTES else "note"
    return mark, f"free space: {size(free)} in {folder}; a build takes up to {size(NEEDED_BYTES)}"
