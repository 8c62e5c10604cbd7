"""Serves components to programs in other languages, with a description of every argument.

The SDK's own host infers a package's schema from the components' types. It knows no `Annotated`,
and reads descriptions from the source of each class alone, which loses those that are inherited:
limits are taken off for it, and told in the descriptions. The host's place in the SDK is marked as
experimental; nothing else depends on it.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType
from typing import Any, get_args, is_typeddict

import pulumi
from pulumi.provider import main
from pulumi.provider.experimental.component import ComponentProvider
from pulumi.provider.experimental.schema import generate_schema

from falaj.components.specification.arguments import hints, without_limits
from falaj.components.specification.described import documented, explained
from falaj.components.specification.property_names import camel

_DISTRIBUTION = "falaj"


class DescribedComponents(ComponentProvider):
    """A provider of components whose schema describes inherited arguments, too."""

    def __init__(
        self, components: Sequence[type[pulumi.ComponentResource]], name: str, version: str
    ) -> None:
        """``name`` is the package's, such as ``falaj-azure``."""
        kinds = {each.__name__: inspect.get_annotations(each.__init__) for each in components}
        with _without_limits(_with_options([found["args"] for found in kinds.values()])):
            super().__init__(list(components), name, None, version)
        for each in components:
            texts = explained(kinds[each.__name__]["args"]), documented(each)
            found = self._component_defs[each.__name__]
            for definitions, descriptions in zip(
                (found.inputs, found.outputs), texts, strict=True
            ):
                for python_name, text in descriptions.items():
                    if camel(python_name) in definitions:
                        definitions[camel(python_name)].description = text
        schema = generate_schema(
            name, version, None, self._component_defs, self._type_defs, self._dependencies
        )
        self.schema = json.dumps(schema.to_json())


def _with_options(kinds: Sequence[type]) -> list[type]:
    """Classes of arguments, and those of the options within them, each once."""
    found: list[type] = []
    waiting: list[Any] = list(kinds)
    while waiting:
        each = waiting.pop()
        if not is_typeddict(each):
            waiting += get_args(each)
        elif each not in found:
            found.append(each)
            waiting += hints(each).values()
    return found


@contextmanager
def _without_limits(kinds: Sequence[type]) -> Generator[None]:
    """Annotations as the SDK reads them, for as long as it does."""
    before = [kind.__annotations__ for kind in kinds]
    try:
        for kind in kinds:
            kind.__annotations__ = {
                name: without_limits(hint) for name, hint in hints(kind).items()
            }
        yield
    finally:
        for kind, annotations in zip(kinds, before, strict=True):
            kind.__annotations__ = annotations


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
