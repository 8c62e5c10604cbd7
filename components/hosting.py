"""Serves components to programs in other languages, with a description of every argument.

The SDK's own host infers a package's schema from the components' types. It reads descriptions from
the source of each class alone, and so loses those of arguments that all components inherit: they
are put back here. The host's place in the SDK is marked as experimental; nothing else depends on
it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import metadata
from types import ModuleType

import pulumi
from pulumi.provider import main
from pulumi.provider.experimental.analyzer import Analyzer
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.experimental.schema import generate_schema

from falaj.components.specification.placed import PlacedArgs

_DISTRIBUTION = "falaj"


class DescribedComponents(ComponentProvider):
    """A provider of components whose schema describes inherited arguments, too."""

    def __init__(
        self, components: Sequence[type[pulumi.ComponentResource]], name: str, version: str
    ) -> None:
        """``name`` is the package's, such as ``falaj-azure``."""
        super().__init__(list(components), name, None, version)
        shared, _ = Analyzer(name).analyze_type(PlacedArgs, is_component_output=False)
        for component in self._component_defs.values():
            for argument, definition in component.inputs.items():
                if not definition.description and argument in shared:
                    definition.description = shared[argument].description
        schema = generate_schema(
            name, version, None, self._component_defs, self._type_defs, self._dependencies
        )
        self.schema = json.dumps(schema.to_json())


def components_of(module: ModuleType) -> list[type[pulumi.ComponentResource]]:
    """The components that a package exports, by name."""
    exported = [getattr(module, name) for name in sorted(module.__all__)]
    return [each for each in exported if issubclass(each, pulumi.ComponentResource)]


def version() -> str:
    """Version of the package: that of the installed distribution, 0.0.0 in a bare checkout."""
    try:
        return metadata.version(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0.0.0"


def host(components: Sequence[type[pulumi.ComponentResource]], name: str) -> None:
    """Serve ``components`` to the engine that started this process, until it ends."""
    main(DescribedComponents(components, name, version()), sys.argv[1:])
