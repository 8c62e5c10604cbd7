"""Which Python runs a project: its `runtime.options` decide.

The options and their meaning are the vendor's:
https://www.pulumi.com/docs/iac/languages-sdks/python/#pulumi-python-options
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TOOLCHAINS = ("pip", "uv", "poetry")


class RuntimeOptionError(Exception):
    """Runtime options that cannot be honoured; the text says which, why and what to do."""


@dataclass(frozen=True)
class Interpreter:
    """The Python of a project: `virtualenv` is None when it is simply the one on the PATH."""

    toolchain: str
    python: Path
    virtualenv: Path | None

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The variables of `base` as they are inside the activated virtual environment."""
        env = dict(base)
        env["PYTHONUNBUFFERED"] = "1"
        if self.virtualenv is not None:
            env["VIRTUAL_ENV"] = str(self.virtualenv)
            env["PATH"] = os.pathsep.join(
                part for part in (str(self.virtualenv / "bin"), env.get("PATH", "")) if part
            )
            env.pop("PYTHONHOME", None)
        return env


def resolve(options: Mapping[str, Any], root: Path) -> Interpreter:
    """Find the interpreter that `options` name for the project (or plugin, or pack) in `root`.

    `virtualenv` is taken relative to `root`. With the toolchain `uv` and no `virtualenv`, it is
    `.venv` beside the nearest `uv.lock`, else `pyproject.toml`, at or above `root`.
    Raises RuntimeOptionError: an unknown toolchain, a missing virtual environment, no Python.
    """
    toolchain = str(options.get("toolchain") or "pip").lower()
    if toolchain not in TOOLCHAINS:
        raise RuntimeOptionError(
            f"runtime option toolchain of the project in {root} is {toolchain!r}; "
            f"it must be one of {', '.join(TOOLCHAINS)}"
        )
    virtualenv = environment_folder(toolchain, str(options.get("virtualenv") or ""), root)
    if virtualenv is None:
        return Interpreter(toolchain, python_on_path(), None)
    python = virtualenv / "bin" / "python"
    if not python.exists():
        raise RuntimeOptionError(
            f"the virtual environment {virtualenv} of the project in {root} does not exist or has "
            "no bin/python; run `pulumi install` there to make it"
        )
    return Interpreter(toolchain, python, virtualenv)


def environment_folder(toolchain: str, virtualenv: str, root: Path) -> Path | None:
    """Where the project's virtual environment is or would be; None when it has none."""
    if virtualenv:
        return (root / virtualenv).absolute()
    if toolchain == "uv":
        project = _nearest(root, "uv.lock") or _nearest(root, "pyproject.toml") or root
        return project / (os.environ.get("UV_PROJECT_ENVIRONMENT") or ".venv")
    if toolchain == "poetry":
        return _poetry_environment(root)
    return None


def _nearest(start: Path, name: str) -> Path | None:
    return next((folder for folder in (start, *start.parents) if (folder / name).is_file()), None)


def _poetry_environment(root: Path) -> Path:
    poetry = shutil.which("poetry")
    if poetry is None:
        raise RuntimeOptionError(
            f"the project in {root} asks for the toolchain poetry, which is not on the PATH; "
            "install poetry, or set runtime option virtualenv"
        )
    command = [poetry, "env", "info", "--path"]
    answer = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if answer.returncode != 0 or not answer.stdout.strip():
        raise RuntimeOptionError(
            f"poetry knows no virtual environment for the project in {root}; "
            "run `pulumi install` there to make it"
        )
    return Path(answer.stdout.strip())


def python_on_path() -> Path:
    """$PULUMI_PYTHON_CMD, else python3, else python; RuntimeOptionError when there is none."""
    names = [name] if (name := os.environ.get("PULUMI_PYTHON_CMD")) else ["python3", "python"]
    for name in names:
        if found := shutil.which(name):
            return Path(found)
    raise RuntimeOptionError(
        f"none of {', '.join(names)} is on the PATH; install Python, "
        "or set runtime option virtualenv"
    )
