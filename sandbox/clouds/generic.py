"""A cloud of which nothing is known beyond its SDK's types."""

from __future__ import annotations

from falaj.sandbox.clouds.model import Made, Problem, Properties, World


class GenericModel:
    """Takes what the types allow, answers no query; ids come from the resource's name.

    Models of clouds build on it where they have nothing to say.
    """

    def __init__(self, package: str) -> None:
        self.package = package

    def check_configuration(self, given: Properties) -> list[Problem]:
        """Every setting of the provider is taken."""
        del given
        return []

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """Nothing is filled in."""
        del token, name, inputs, config, urn
        return {}

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """Nothing is wrong beyond the types."""
        del token, inputs, config
        return []

    def conflicts(
        self,
        token: str,
        inputs: Properties,
        config: Properties,
        world: World,
        id: str | None,
    ) -> list[Problem]:
        """Nothing stands against a resource."""
        del token, inputs, config, world, id
        return []

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        """Nothing stands in the way of a deletion."""
        del token, made, world
        return []

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The sandbox makes the id."""
        del token, name, inputs, config, urn
        return ""

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """The inputs; the sandbox adds what the types promise."""
        del token, id, config, world
        return inputs

    def is_shared(self, token: str) -> bool:
        """Nothing is, as far as is known here."""
        del token
        return False

    def replacements(self, token: str) -> frozenset[str]:
        """Everything can be changed in place."""
        del token
        return frozenset()

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """No query is known. Raises LookupError."""
        del args, config, world
        raise LookupError(f"the sandbox doesn't know the query {token}")
