"""What is installed in the Python of a project, and which provider plugins that asks for."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulumi.runtime.proto import plugin_pb2

from falaj.engine.languagehost.interpreter import Interpreter

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
