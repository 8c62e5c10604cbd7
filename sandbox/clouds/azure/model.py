"""What Azure would say: ids, outputs, rules, conflicts, obstacles and queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    arm,
    checks,
    conflicts,
    enums,
    generic,
    invented,
    obstacles,
    places,
    queries,
    results,
    rows,
)
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.shape import shape
from falaj.sandbox.clouds.model import Made, Problem, Properties, World

SERVICES: Final = rows.SERVICES


class AzureModel:
    """The azure-native provider's model of Azure."""

    package = "azure-native"

    def check_configuration(self, given: Properties) -> list[Problem]:
        """Problems of the provider's settings: region, subscription, tenant."""
        ask = Ask("", given, {})
        found = list(checks.location(None, ask))
        for name in ("subscriptionId", "tenantId", "clientId"):
            found += checks.guid(name, ask.text(name))
        return found

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """The automatic name, and the region of the provider's settings."""
        kind = generic.kind(token)
        added: dict[str, Any] = {}
        own = kind.own_name
        if own and inputs.get(own) is None:
            added[own] = _automatic_name(kind, name, urn)
        region = config.get("location")
        known = shape(token)
        if region and inputs.get("location") is None and known and "location" in known.inputs:
            added["location"] = places.GLOBAL if kind.location == "global" else region
        return added

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """What the service refuses whatever else exists; skips what isn't known yet."""
        kind = generic.kind(token)
        ask = Ask(token, inputs, config)
        return [*_common_problems(kind, ask), *kind.problems(ask)]

    def conflicts(
        self,
        token: str,
        inputs: Properties,
        config: Properties,
        world: World,
        id: str | None,
    ) -> list[Problem]:
        """What the service refuses given all that exists."""
        kind = generic.kind(token)
        own = id or arm.build(kind, inputs, "_")
        ask = Ask(token, inputs, config, world, own)
        return [*conflicts.common(kind, ask, is_new=id is None), *kind.conflicts(ask)]

    def obstacles(self, token: str, made: Made, world: World) -> list[Problem]:
        """What still stands in the way of deletion."""
        kind = generic.kind(token)
        ask = Ask(token, made.inputs, {}, world, made.id)
        return [*obstacles.common(kind, made, world), *kind.obstacles(ask)]

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The resource's id in Resource Manager."""
        del config
        kind = generic.kind(token)
        return arm.build(kind, inputs, _automatic_name(kind, name, urn))

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """All that the service answers with."""
        kind = generic.kind(token)
        ask = Ask(token, inputs, config, world, id)
        return {**results.common(kind, ask), **kind.outputs(ask)}

    def is_shared(self, token: str) -> bool:
        """Whether it is a setting that every subscription has."""
        return generic.kind(token).is_always_there

    def replacements(self, token: str) -> frozenset[str]:
        """The path's inputs, the location, and what the type's row names."""
        kind = generic.kind(token)
        path = {*kind.parameters, *({"resourceGroupName"} if kind.is_in_group else ())}
        return frozenset({*path, "location", *kind.replaces})

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """The answer to a query.

        Raises:
            LookupError: the query isn't known, or Azure would refuse to answer it.
        """
        return queries.answer(token, args, config, world)


def _automatic_name(kind: Kind, name: str, urn: str) -> str:
    # azure-native gives a resource at the top level its Pulumi name and eight random hexadecimal
    # digits, a child its Pulumi name alone, and role assignments and definitions a GUID.
    mode = kind.autoname or ("random" if len(kind.parameters) == 1 else "copy")
    if mode == "uuid":
        return invented.guid("name", urn)
    return name + invented.digest(8, "name", urn) if mode == "random" else name


def _common_problems(kind: Kind, ask: Ask) -> Iterator[Problem]:
    yield from checks.location(kind, ask)
    if isinstance(ask.at("tags"), Mapping):
        yield from checks.tags(kind.max_tags, ask)
    yield from checks.zones("zones", ask)
    group = ask.text("resourceGroupName")
    if group and kind.is_in_group:
        group_kind = generic.kind("azure-native:resources:ResourceGroup")
        if group_kind.name:
            yield from group_kind.name.check("resourceGroupName", group)
    own = ask.text(kind.own_name) if kind.own_name else None
    if kind.name and kind.own_name and own:
        yield from kind.name.check(kind.own_name, own)
    yield from enums.check(kind, ask)
