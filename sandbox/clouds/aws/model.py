"""What AWS would say: names, ids, ARNs, refusals, answers to queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from falaj.sandbox.clouds.aws import queries, quotas, relations, tags
from falaj.sandbox.clouds.aws.naming import (
    MissingError,
    automatic_name,
    fill,
    generic_arn,
    generic_id,
)
from falaj.sandbox.clouds.aws.regions import known_region, region_name, region_of
from falaj.sandbox.clouds.aws.registry import kind_of, kinds
from falaj.sandbox.clouds.aws.sdk import enumeration_rules, shape
from falaj.sandbox.clouds.aws.tokens import canonical
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Made, Problem, Properties, World
from falaj.wire import UNKNOWN


class AwsModel:
    """The sandbox's AWS: one account, every region."""

    package = "aws"

    def check_configuration(self, given: Properties) -> list[Problem]:
        """The provider needs a region that exists; which one is for others to judge."""
        region = given.get("region")
        if region is None:
            return [Problem("region", "is missing; give the provider one, such as me-central-1")]
        skips = given.get("skipRegionValidation") in (True, "true")
        if isinstance(region, str) and not known_region(region) and not skips:
            return [
                Problem("region", f"{region!r} is no AWS region; give one such as me-central-1")
            ]
        return list(tags.default_tag_problems(given))

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """A name and the provider's region, as pulumi-aws adds them."""
        known = shape(token)
        if known is None:
            return {}
        found: dict[str, Any] = {}
        if known.regional and inputs.get("region") is None and config.get("region") is not None:
            found["region"] = config["region"]
        found |= automatic_name(kind_of(token), known, name, inputs, urn)
        return found

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """Enums, names, patterns, documents, addresses; what unknown values hide is skipped."""
        return list(_problems(Inputs(inputs, config, canonical(token))))

    def conflicts(
        self, token: str, inputs: Properties, config: Properties, world: World, id: str | None
    ) -> list[Problem]:
        """References, names taken, quotas, and what the services check of each other."""
        resource = Resource(inputs, config, canonical(token), world=world, id=id or "")
        kind = kind_of(token)
        found = list(quotas.exceeded(resource, world)) if id is None else []
        if kind is None:
            return found
        found += relations.broken_references(kind, resource, world)
        found += relations.taken(kind, resource, world, id)
        for crosscheck in kind.crosschecks:
            found += crosscheck(resource)
        return found

    def delete_blockers(self, token: str, made: Made, world: World) -> list[Problem]:
        """What refers to the resource and keeps it from being deleted."""
        found = list(relations.standing_in_the_way(made, kinds(), world))
        kind = kind_of(token)
        for blocker in kind.delete_blockers if kind is not None else ():
            found += blocker(Resource.of(made, world))
        return found

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """The id, from the type's template; of the form ``name-digits`` where none is known."""
        wanted, kind = Inputs(inputs, config, canonical(token)), kind_of(token)
        if kind is None or not kind.id:
            return generic_id(wanted, name, urn)
        if callable(kind.id):
            return kind.id(wanted) or generic_id(wanted, name, urn)
        try:
            found = fill(kind.id, _completed(wanted, kind.defaults), seed=urn)
        except MissingError:
            found = ""
        return found or generic_id(wanted, name, urn)

    def outputs(
        self, token: str, id: str, inputs: Properties, config: Properties, world: World
    ) -> Properties:
        """The inputs, and the ARN, region, tags and whatever else the service computes."""
        wanted = Resource(inputs, config, canonical(token), world=world, id=id)
        kind, known = kind_of(token), shape(token)
        found: dict[str, Any] = dict(known.unset) if known is not None else {}
        found |= kind.defaults if kind is not None else {}
        found |= {key: value for key, value in inputs.items() if value is not None}
        if known is not None and "arn" in known.outputs and not wanted.is_given("arn"):
            arn = _arn(wanted, id, kind.arn if kind is not None else "", found)
            if arn is not None:
                found["arn"] = arn
        if known is not None and known.regional and region_of(wanted):
            found["region"] = region_of(wanted)
        if known is not None and known.taggable:
            found["tagsAll"] = tags.merged(inputs, config)
        if kind is not None and kind.computed is not None:
            for key, value in kind.computed(wanted).items():
                if key not in inputs or inputs[key] is None or isinstance(value, Mapping):
                    found[key] = value
        return found

    def is_shared(self, token: str) -> bool:
        """Whether it is a setting that every account has in a region."""
        kind = kind_of(token)
        return kind is not None and kind.is_always_there

    def replacements(self, token: str) -> frozenset[str]:
        """Properties that can't be changed in place; moving to another region is one of them."""
        kind, known = kind_of(token), shape(token)
        region = {"region"} if known is not None and known.regional else set[str]()
        return frozenset(kind.replaces if kind is not None else ()) | region

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """The answer to a query.

        Raises:
            LookupError: the sandbox doesn't know the query, or what it asks for.
        """
        return queries.answer(token, args, config, world)


def _problems(wanted: Inputs) -> Iterator[Problem]:
    kind, known = kind_of(wanted.token), shape(wanted.token)
    if known is not None and known.regional:
        yield from region_name("region")(wanted)
    if known is not None and known.taggable:
        yield from tags.problems(wanted)
    for rule in enumeration_rules(wanted.token):
        yield from rule(wanted)
    if kind is not None:
        yield from relations.ill_formed_references(kind, kinds(), wanted)
        for rule in kind.rules:
            yield from rule(wanted)


def _arn(wanted: Inputs, id: str, template: str, known: Mapping[str, Any]) -> Any:
    if template in ("", "*"):
        return id if id.startswith("arn:") else generic_arn(wanted, id)
    try:
        return fill("arn:{partition}:" + template, _completed(wanted, known), id=id)
    except MissingError:
        return UNKNOWN


def _completed(wanted: Inputs, defaults: Mapping[str, Any]) -> Inputs:
    """The inputs with what holds where it says nothing."""
    given = {key: value for key, value in wanted.values.items() if value is not None}
    return replace(wanted, values={**defaults, **given})


MODEL = AwsModel()
