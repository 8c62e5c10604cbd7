"""Which class of which SDK stands for a type token, read without importing the SDK."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Final

from falaj.engine.errors import EngineError

SDKS: Final = {
    "aws": "pulumi_aws",
    "azure-native": "pulumi_azure_native",
    "kubernetes": "pulumi_kubernetes",
}
"""The module of each package's SDK."""

EXTRAS: Final = {"aws": "aws", "azure-native": "azure", "kubernetes": "kubernetes"}

_FUNCTION: Final = re.compile(r"pulumi\.runtime\.invoke\(\s*'([^']+)'")
_ARGUMENT: Final = re.compile(r"__args__\['([^']+)'\]")


@dataclass(frozen=True)
class Package:
    """An installed SDK.

    Raises:
        EngineError: the SDK isn't installed, or isn't one that we know.
    """

    name: str
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        module = SDKS.get(self.name)
        if module is None:
            raise EngineError(
                f"{self.name!r} is no cloud that the sandbox stands in for; "
                f"allowed: {', '.join(SDKS)}"
            )
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise EngineError(
                f"the Python SDK {module} isn't installed; install Falaj's extra "
                f"{EXTRAS[self.name]!r} with `python engine/environment.py --extra "
                f"{EXTRAS[self.name]}`"
            )
        object.__setattr__(self, "folder", Path(spec.origin).parent)

    @property
    def module(self) -> str:
        """The SDK's top module."""
        return SDKS[self.name]

    @property
    def version(self) -> str:
        """The SDK's version."""
        return metadata.version(self.module)

    @cached_property
    def classes(self) -> Mapping[str, tuple[str, str]]:
        """The module and the class of each resource type's token."""
        text = (self.folder / "__init__.py").read_text(encoding="utf-8")
        found: dict[str, tuple[str, str]] = {}
        listed = re.search(r'resource_modules="""(.*?)"""', text, re.DOTALL)
        for entry in json.loads(listed.group(1)) if listed else []:
            for token, class_name in entry["classes"].items():
                found[token] = (entry["fqn"], class_name)
        return found

    def provider_class(self) -> type:
        """The class of the provider's own settings."""
        return _arguments_class(importlib.import_module(f"{self.module}.provider"))

    def resource_class(self, token: str) -> type:
        """The class of a resource; imports its part of the SDK. Raises KeyError."""
        module, class_name = self.classes[token]
        return getattr(importlib.import_module(module), class_name)

    def arguments_class(self, resource: type) -> type:
        """The class of a resource's arguments."""
        return _arguments_class(sys.modules[resource.__module__])

    def function_arguments(self, token: str) -> frozenset[str] | None:
        """The names of a query's arguments; None for a query that the SDK doesn't have."""
        # aws:ec2/getSubnet:getSubnet, azure-native:authorization:getClientConfig
        parts = token.split(":")
        if len(parts) != 3:
            return None
        section, name = parts[1].split("/")[0], parts[2]
        folder = self.folder if section == "index" else self.folder / section
        for source in (folder / f"{_snake(name)}.py", self.folder / f"{_snake(name)}.py"):
            if source.is_file():
                text = source.read_text(encoding="utf-8")
                if token in _FUNCTION.findall(text):
                    return frozenset(_ARGUMENT.findall(text))
        return None


def _arguments_class(module: ModuleType) -> type:
    # The module of a resource lists its arguments' class first, then the resource's.
    name = next(name for name in module.__all__ if name.endswith("Args"))
    return getattr(module, name)


def _snake(name: str) -> str:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return split.lower()
