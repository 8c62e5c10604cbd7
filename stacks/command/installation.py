"""How this Falaj was installed, by `make` or from a wheel; how to call it, how to add to it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from falaj.engine import extras
from falaj.engine.extras import OF_PROVIDERS
from falaj.stacks.command.console import say
from falaj.stacks.errors import StackError
from falaj.wire.documents import is_mapping, sequence

#: What holds our packages: the project's folder in a clone, ``falaj`` in an installation.
ROOT: Final = Path(__file__).resolve().parents[2]
_ENVIRONMENT: Final = ROOT / "engine" / "environment.py"
#: Set for the run that follows an installation, so that it can't go round.
_INSTALLED_NOW: Final = "FALAJ_EXTRAS_INSTALLED"


def is_clone() -> bool:
    """Whether this runs from a clone whose environment `make` has made."""
    return (ROOT / "Makefile").is_file() and (ROOT / "requirements" / "bootstrap.txt").is_file()


def program() -> str:
    """How a person calls ``falaj`` from where they are, quoted for a shell."""
    own = Path(sys.prefix) / "bin" / "falaj"
    found = shutil.which("falaj")
    if not own.exists() or (found and Path(found).resolve() == own.resolve()):
        return "falaj"
    return format_path(own)


def call(arguments: str) -> str:
    """A call of ``falaj``, to be pasted into a shell; ``arguments`` follow its name, quoted."""
    return f"{program()} {arguments}"


def python() -> str:
    """This installation's interpreter, as a person calls it from where they are."""
    return format_path(Path(sys.prefix) / "bin" / "python")


def how_to_install(needed: Sequence[str]) -> str:
    """The command that adds extras to this installation."""
    if is_clone():
        options = " ".join(f"--extra {name}" for name in needed)
        return f"install it with: {python()} {format_path(_ENVIRONMENT)} {options}"
    wanted = f"'{extras.DISTRIBUTION}[{','.join(needed)}]'"
    if (Path(sys.prefix) / "uv-receipt.toml").is_file():  # what `uv tool install` leaves
        return f"install it with: uv tool install {wanted}"
    return f"install it with: {python()} -m pip install {wanted}"


def extras_of_stack(values: Mapping[str, Any]) -> list[str]:
    """The extras that a stack's program and its check need, by its raw configuration.

    Args:
        values: by namespaced key, as they stand in the files; they need not be right.
    """
    platform, blueprint = values.get("falaj:platform"), values.get("falaj:blueprint")
    placement: Any = values.get("falaj:placement")
    named = [str(platform)] if platform else []
    named += [str(place).partition("/")[0] for place in sequence(placement)]
    if blueprint in ("platform", "workloads"):
        named.append("kubernetes")
    # Programs that aren't Falaj's say by their providers' settings which clouds they are for.
    named += [extra for space, extra in OF_PROVIDERS.items() if _has(values, space)]
    # An engine that is asked for by name is called as the extra that has it.
    optimization: Any = values.get("falaj:optimization")
    if is_mapping(optimization):
        named.append(str(optimization.get("engine")))
    known = extras.names()
    return sorted({name for name in named if name in known})


def _has(values: Mapping[str, Any], namespace: str) -> bool:
    return any(key.partition(":")[0] == namespace for key in values)


def require(needed: Sequence[str]) -> None:
    """Have the extras that a command is about to need.

    In a clone they are installed and the command begins anew, as if they had always been there.

    Raises:
        StackError: they can't be installed, or this is no clone.
    """
    missing = [name for name in needed if not extras.is_installed(name)]
    if not missing:
        return
    what = " and ".join(missing)
    if not is_clone():
        raise StackError(
            f"this needs more of Falaj than is installed: {what}\n  {how_to_install(missing)}"
        )
    if os.environ.get(_INSTALLED_NOW) == what:
        raise StackError(
            f"{what} was installed into {sys.prefix} and still isn't complete\n"
            "  remove that folder and run this again"
        )
    say(f"this needs Falaj's extra {what}: adding to the Python environment")
    options = ["--venv", sys.prefix, *(part for name in missing for part in ("--extra", name))]
    done = subprocess.run([sys.executable, str(_ENVIRONMENT), *options], check=False)
    if done.returncode != 0:
        raise StackError(f"{what} could not be installed; what was printed above says why")
    arguments = [sys.executable, "-P", "-m", "falaj.stacks.command", *sys.argv[1:]]
    os.execve(sys.executable, arguments, {**os.environ, _INSTALLED_NOW: what})  # noqa: S606


def format_path(path: Path) -> str:
    """A path as short as it works from where a person stands, quoted for a shell."""
    here = Path.cwd()
    return shlex.quote(str(path.relative_to(here) if path.is_relative_to(here) else path))
