"""Which Python runs a project, how it is filled, and what is installed in it.

The options of `runtime.options` and their meaning are the vendor's:
https://www.pulumi.com/docs/iac/languages-sdks/python/#pulumi-python-options
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falaj.wire.protocol import plugin_pb2

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


# How `pulumi install` fills the virtual environment of a project.


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


# What is installed in the Python of a project, and which provider plugins that asks for.

INVENTORY = Path(__file__).with_name("inventory.py")


@dataclass(frozen=True)
class Package:
    """One installed Python package; `plugin` is the content of its pulumi-plugin.json."""

    name: str
    version: str
    needed_by_others: bool
    plugin: Mapping[str, Any] | None

    def provider_plugin(self) -> plugin_pb2.PackageDependency | None:
        """The resource plugin that this SDK package needs, or None."""
        if not self.plugin or not self.plugin.get("resource"):
            return None
        plugin = plugin_pb2.PackageDependency(
            name=str(self.plugin.get("name") or self.name.removeprefix("pulumi-")),
            kind="resource",
            version=str(self.plugin.get("version") or self.version),
            server=str(self.plugin.get("server") or ""),
        )
        if parameterization := self.plugin.get("parameterization"):
            plugin.parameterization.CopyFrom(
                plugin_pb2.PackageParameterization(
                    name=parameterization["name"],
                    version=parameterization["version"],
                    value=base64.b64decode(parameterization["value"]),
                )
            )
        return plugin


async def installed(interpreter: Interpreter) -> list[Package]:
    """Every package that `interpreter` has, by name. Raises OSError when it cannot be asked."""
    entries: list[dict[str, Any]] = json.loads(await _ask(interpreter, str(INVENTORY)))
    needed = {name for entry in entries for name in entry["requires"]}
    return [
        Package(
            name=entry["name"],
            version=entry["version"],
            needed_by_others=re.sub(r"[-_.]+", "-", entry["name"]).lower() in needed,
            plugin=entry["plugin"],
        )
        for entry in entries
    ]


async def python_version(interpreter: Interpreter) -> str:
    """The version of `interpreter`, such as "3.11.7". Raises OSError when it cannot be asked."""
    return (
        await _ask(interpreter, "-c", "import platform; print(platform.python_version())")
    ).strip()


async def _ask(interpreter: Interpreter, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        str(interpreter.python),
        *arguments,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=interpreter.environment({}),
    )
    out, err = await process.communicate()
    if process.returncode != 0:
        last = err.decode(errors="replace").strip().splitlines()[-1:]
        raise OSError(f"{interpreter.python} could not be asked: {' '.join(last)}")
    return out.decode()
