"""What Azure would say: ids, outputs, rules, conflicts, what blocks a delete, and queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import (
    checks,
    kinds,
    naming,
    queries,
    regions,
    registry,
    relations,
    resources,
    spelling,
)
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import shape
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Made, Problem, Properties, World
from falaj.wire.documents import is_mapping

SERVICES: Final = registry.SERVICES


class AzureModel:
    """The azure-native provider's model of Azure."""

    package = "azure-native"

    def check_configuration(self, given: Properties) -> list[Problem]:
        """Problems of the provider's settings: region, subscription, tenant."""
        inputs = Inputs(given)
        found = list(checks.location(None, inputs))
        for name in ("subscriptionId", "tenantId", "clientId"):
            found += checks.guid(name, inputs.optional_string(name))
        return found

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """The automatic name, and the region of the provider's settings."""
        kind = registry.kind_of(token)
        added: dict[str, Any] = {}
        own = kind.own_name
        if own and inputs.get(own) is None:
            added[own] = _automatic_name(kind, name, urn)
        region = config.get("location")
        known = shape(token)
        if region and inputs.get("location") is None and known and "location" in known.inputs:
            added["location"] = regions.GLOBAL if kind.location == "global" else region
        return added

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """What the service refuses whatever else exists; skips what isn't known yet."""
        kind = registry.kind_of(token)
        wanted = Inputs(spelling.canonical(token, inputs), config, token)
        found = [*_common_problems(kind, wanted), *relations.ill_formed(kind, wanted)]
        for rule in kind.rules:
            found += rule(wanted)
        return found

    def conflicts(
        self,
        token: str,
        inputs: Properties,
        config: Properties,
        world: World,
        id: str | None,
    ) -> list[Problem]:
        """What the service refuses given all that exists."""
        kind = registry.kind_of(token)
        own = id or naming.build(kind, inputs, "_")
        resource = Resource(spelling.canonical(token, inputs), config, token, world=world, id=own)
        found = list(relations.common(kind, resource, is_new=id is None))
        found += relations.elsewhere(kind, resource, resources.location(resource))
        for crosscheck in kind.crosschecks:
            found += crosscheck(resource)
        return found

    def creation_problems(
        self, token: str, inputs: Properties, config: Properties
    ) -> list[Problem]:
        """What only a resource that exists already may ask for."""
        given = Inputs(spelling.canonical(token, inputs), config, token)
        return [
            problem for rule in registry.kind_of(token).creation_rules for problem in rule(given)
        ]

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        """What keeps a resource from being deleted."""
        kind = registry.kind_of(token)
        found = list(relations.delete_blockers(kind, made, world))
        for blocker in kind.delete_blockers:
            found += blocker(Resource.of(made, world))
        return found

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The resource's id in Resource Manager."""
        del config
        kind = registry.kind_of(token)
        return naming.build(kind, inputs, _automatic_name(kind, name, urn))

    def is_guessed(self, token: str) -> bool:
        """Whether no service of the sandbox's describes the type."""
        return kinds.kind_of(token) is None

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """All that the service answers with."""
        kind = registry.kind_of(token)
        spelt = spelling.canonical(token, inputs)
        resource = Resource(spelt, config, token, world=world, id=id)
        found = {**kind.defaults, **resources.common(kind, resource)}
        return {**found, **kind.computed(resource)} if kind.computed is not None else found

    def is_shared(self, token: str) -> bool:
        """Whether it is a setting that every subscription has."""
        return registry.kind_of(token).is_always_there

    def taken_along(self, token: str, made: Made, world: World) -> list[Made]:
        """What stands in a vault or a hardware module, which can't be deleted by itself."""
        if not registry.kind_of(token).takes_along:
            return []
        return [
            each
            for each in resources.azure(world)
            if each.id != made.id and naming.is_below(each.id, made.id)
        ]

    def replacements(self, token: str) -> frozenset[str]:
        """The path's inputs, the location, and what the type's row names."""
        kind = registry.kind_of(token)
        path = {*kind.parameters, *({"resourceGroupName"} if kind.is_in_group else ())}
        return frozenset({*path, "location", *kind.replaces})

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """The answer to a query.

        Raises:
            LookupError: the query isn't known, or Azure would refuse to answer it.
        """
        return queries.answer(token, args, config, world)


def _automatic_name(kind: AzureKind, name: str, urn: str) -> str:
    # azure-native gives a resource at the top level its Pulumi name and eight random hexadecimal
    # digits, a child its Pulumi name alone, and role assignments and definitions a GUID.
    mode = kind.autoname or ("random" if len(kind.parameters) == 1 else "copy")
    if mode == "uuid":
        return naming.guid("name", urn)
    return name + naming.digest(8, "name", urn) if mode == "random" else name


def _common_problems(kind: AzureKind, inputs: Inputs) -> Iterator[Problem]:
    yield from checks.location(kind, inputs)
    if is_mapping(inputs.at("tags")):
        yield from checks.tags(kind.max_tags, inputs)
    yield from checks.zones("zones", inputs)
    group = inputs.optional_string("resourceGroupName")
    if group and kind.is_in_group:
        group_kind = registry.kind_of("azure-native:resources:ResourceGroup")
        if group_kind.name:
            yield from group_kind.name.check("resourceGroupName", group)
    own = inputs.optional_string(kind.own_name) if kind.own_name else None
    if kind.name and kind.own_name and own:
        yield from kind.name.check(kind.own_name, own)
    yield from checks.enumerations(kind, inputs)
