"""The command lines of what a language host runs: programs, plugins and policy packs."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pulumi.runtime.proto import language_pb2

from falaj.engine.languagehost.interpreter import Interpreter

EXECUTE = Path(__file__).with_name("execute.py")


def program_command(
    request: language_pb2.RunRequest, interpreter: Interpreter, engine_address: str
) -> list[str]:
    """How to run the stack program of `request`."""
    info = request.info
    # The entry point is relative to the program's folder; "." is the folder itself.
    program = Path(info.program_directory) / (info.entry_point or ".")
    spec: dict[str, Any] = {
        "project": request.project,
        "stack": request.stack,
        "organization": request.organization,
        "parallel": request.parallel,
        "dry_run": request.dryRun,
        "monitor": request.monitor_address,
        "engine": engine_address,
        "root": info.root_directory,
        "pwd": request.pwd or info.program_directory,
        "program": str(program),
        "args": list(request.args),
    }
    return [str(interpreter.python), "-u", str(EXECUTE), json.dumps(spec)]


def program_environment(
    request: language_pb2.RunRequest, interpreter: Interpreter, base: Mapping[str, str]
) -> dict[str, str]:
    """The variables of the program of `request`; configuration travels in them, not in argv."""
    env = interpreter.environment(base)
    env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
    env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
    return env


def plugin_command(request: language_pb2.RunPluginRequest, interpreter: Interpreter) -> list[str]:
    """How to run the plugin of `request`: a policy pack, a runnable folder or a package."""
    python = [str(interpreter.python), "-u"]
    folder = Path(request.info.program_directory)
    arguments = list(request.args)
    if request.kind == "analyzer":
        # `python -m pulumi.policy ENGINE_ADDRESS PACK`: the address comes last in the request.
        *flags, address = arguments
        return [*python, "-m", "pulumi.policy", *flags, address, str(folder)]
    entry = folder / (request.info.entry_point or ".")
    runnable = not entry.is_dir() or (entry / "__main__.py").exists()
    if not runnable and (name := _distribution_name(entry)):
        return [*python, "-m", "pulumi.run.plugin", name, *arguments]
    return [*python, str(entry), *arguments]


def _distribution_name(folder: Path) -> str | None:
    """The name in the folder's pyproject.toml, when it is a Python package."""
    try:
        with (folder / "pyproject.toml").open("rb") as file:
            name = tomllib.load(file)["project"]["name"]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return None
    return name if isinstance(name, str) else None
