"""The provider ``falaj-local``: its explicit resource, and those that the components register."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, TypedDict

import pulumi

from falaj.components.specification.described import described
from falaj.components.specification.property_names import camel, engine_inputs, snake


@described
class LocalProviderArgs(TypedDict):
    """Arguments of `LocalProvider`."""

    site: str
    """Absolute path of the stack's site; internal errors are logged in it."""


class LocalProvider(pulumi.ProviderResource):
    """The provider ``falaj-local``: everything of a stack on this machine goes through it."""

    def __init__(
        self, name: str, args: LocalProviderArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("falaj-local", name, {"site": args["site"]}, opts)


# The custom resources of the provider ``falaj-local``, as the components register them.

_PACKAGE = "falaj-local"


class LocalResource(pulumi.CustomResource):
    """One resource of the provider; its outputs are looked up by their Python names.

    Args:
        type_name: the resource's type, for example ``KeyRing``.
        name: its name in the program.
        inputs: by Python name; None counts as left out.
        outputs: Python names of what only the provider knows.
        opts: options; the provider comes from the parent.
    """

    def __init__(
        self,
        type_name: str,
        name: str,
        inputs: Mapping[str, Any],
        outputs: tuple[str, ...],
        opts: pulumi.ResourceOptions,
    ) -> None:
        # An output has to be named here to be filled in; None is not sent.
        properties = {**dict.fromkeys(outputs), **inputs}
        super().__init__(f"{_PACKAGE}:index:{type_name}", name, properties, opts)

    def translate_input_property(self, prop: str) -> str:
        """From Python's spelling to the engine's."""
        return camel(prop)

    def translate_output_property(self, prop: str) -> str:
        """From the engine's spelling to Python's."""
        return snake(prop)

    def value(self, name: str) -> pulumi.Output[Any]:
        """An input or output by its Python name."""
        return getattr(self, name)


class LocalComponent(pulumi.ComponentResource):
    """A component over one resource: a stable name and place in the tree for programs.

    Its class has the resource's name, and its annotations are its outputs.

    Args:
        name: its name in the program.
        args: the arguments, by Python name.
        opts: options; without a provider in them or in the parent the engine refuses the resource.
    """

    _type_name: ClassVar[str]
    _outputs: ClassVar[tuple[str, ...]]
    _named: ClassVar[Mapping[str, str]]

    def __init_subclass__(cls, named: Mapping[str, str] | None = None) -> None:
        """``named`` are outputs that the resource calls otherwise, as it has such an input."""
        super().__init_subclass__()
        # A program's own subclass is the same resource.
        if LocalComponent in cls.__bases__:
            cls._type_name = cls.__name__
            cls._outputs = tuple(inspect.get_annotations(cls))
            cls._named = named or {}

    def __init__(
        self, name: str, args: Mapping[str, Any], opts: pulumi.ResourceOptions | None
    ) -> None:
        given = {key: value for key, value in args.items() if value is not None}
        super().__init__(f"falaj:local:{self._type_name}", name, engine_inputs(given), opts)
        named = {output: self._named.get(output, output) for output in self._outputs}
        self._resource = LocalResource(
            self._type_name, name, given,
            tuple(each for each in named.values() if each not in given),
            pulumi.ResourceOptions(parent=self),
        )  # fmt: skip
        made = {output: self._resource.value(each) for output, each in named.items()}
        for output, value in made.items():
            setattr(self, output, value)
        self.register_outputs(made)
