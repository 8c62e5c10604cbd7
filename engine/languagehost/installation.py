"""How `pulumi install` fills the virtual environment of a project."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falaj.engine.languagehost.interpreter import (
    TOOLCHAINS,
    RuntimeOptionError,
    environment_folder,
    python_on_path,
)


@dataclass(frozen=True)
class Step:
    """One command of an installation, run in `folder` with `variables` added to ours."""

    command: list[str]
    folder: Path
    variables: dict[str, str] = field(default_factory=dict[str, str])

    def environment(self) -> dict[str, str]:
        """The command's variables."""
        return {**os.environ, **self.variables}


def steps(options: Mapping[str, Any], root: Path, folder: Path) -> list[Step]:
    """The commands that install what the project in `root`, with its program in `folder`, needs.

    pip: makes the virtual environment where one is named and missing, then installs
    requirements.txt. uv: `uv sync`, or the same two steps where there is a requirements.txt only.
    poetry: `poetry install`. Raises RuntimeOptionError: unknown toolchain, or its tool is missing.
    """
    toolchain = str(options.get("toolchain") or "pip").lower()
    virtualenv = str(options.get("virtualenv") or "")
    if toolchain == "pip":
        return _pip(environment_folder("pip", virtualenv, root), root, folder)
    if toolchain == "uv":
        return _uv(environment_folder("uv", virtualenv, root) or root / ".venv", root, folder)
    if toolchain == "poetry":
        return [Step([_tool("poetry"), "install", "--no-interaction", "--no-ansi"], folder)]
    raise RuntimeOptionError(
        f"runtime option toolchain of the project in {root} is {toolchain!r}; "
        f"it must be one of {', '.join(TOOLCHAINS)}"
    )


def _pip(virtualenv: Path | None, root: Path, folder: Path) -> list[Step]:
    found: list[Step] = []
    python = python_on_path()
    if virtualenv is not None:
        if not (virtualenv / "bin" / "python").exists():
            found.append(Step([str(python), "-m", "venv", str(virtualenv)], root))
        python = virtualenv / "bin" / "python"
    if requirements := _requirements(root, folder):
        install = ["-m", "pip", "install", "--disable-pip-version-check", "-r", str(requirements)]
        found.append(Step([str(python), *install], folder))
    return found


def _uv(virtualenv: Path, root: Path, folder: Path) -> list[Step]:
    uv = _tool("uv")
    requirements = _requirements(root, folder)
    if requirements is None or (requirements.parent / "pyproject.toml").is_file():
        return [Step([uv, "sync"], folder, {"UV_PROJECT_ENVIRONMENT": str(virtualenv)})]
    found: list[Step] = []
    if not (virtualenv / "bin" / "python").exists():
        found.append(Step([uv, "venv", str(virtualenv)], root))
    install = ["pip", "install", "--python", str(virtualenv), "-r", str(requirements)]
    return [*found, Step([uv, *install], folder)]


def _requirements(root: Path, folder: Path) -> Path | None:
    candidates = (folder / "requirements.txt", root / "requirements.txt")
    return next((path for path in candidates if path.is_file()), None)


def _tool(name: str) -> str:
    if found := shutil.which(name):
        return found
    raise RuntimeOptionError(
        f"runtime option toolchain is {name!r}, but {name} is not on the PATH; install it, "
        "or use toolchain pip"
    )
