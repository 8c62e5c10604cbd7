"""What AWS would say: names, ids, ARNs, tags, refusals, answers to queries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from falaj.sandbox.clouds.aws import queries, relations
from falaj.sandbox.clouds.aws.default_networks import WithDefaultNetworks
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds, canonical
from falaj.sandbox.clouds.aws.naming import (
    MissingError,
    automatic_name,
    fill,
    generic_arn,
    generic_id,
)
from falaj.sandbox.clouds.aws.regions import known_region, region_name, region_of
from falaj.sandbox.clouds.aws.sdk import enumeration_rules, shape
from falaj.sandbox.clouds.aws.services import (
    balancing,
    clusters,
    compute,
    containers,
    identity,
    network,
    observability,
    security_groups,
    storage,
)
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_map
from falaj.sandbox.clouds.model import Made, Problem, Properties, World
from falaj.wire import UNKNOWN, Unknown, has_unknown
from falaj.wire.documents import is_mapping

# All types that the model knows by more than the SDK's word.

_SERVICES: Final = (
    balancing, clusters, compute, containers, identity, network, observability, security_groups,
    storage,
)  # fmt: skip


@cache
def kinds() -> AwsKinds:
    """Every described type by its token."""
    return {token: kind for service in _SERVICES for token, kind in service.KINDS.items()}


def kind_of(token: str) -> AwsKind | None:
    """The description of a type; None for those of which only the SDK speaks."""
    return kinds().get(canonical(token))


# Tags: the provider's default ones, and what AWS allows.

# "Tag naming limits and requirements", AWS general reference (Tagging AWS resources).
_MOST_TAGS: Final = 50
_LONGEST_KEY: Final = 128
_LONGEST_VALUE: Final = 256
_TAG_CHARACTERS: Final = re.compile(r"[\w\s.:/=+\-@]*")
# Services that take more characters than the general rule: EC2 and what lies on it take any.
_ANY_CHARACTER: Final = ("aws:ec2/", "aws:vpc/", "aws:autoscaling/", "aws:ebs/")


def merged_tags(inputs: Properties, config: Properties) -> Any:
    """``tagsAll``: the provider's default tags, overridden by the resource's own.

    As pulumi-aws has it (``provider/tags.go``): unknown when any of them is.
    """
    own = inputs.get("tags")
    defaults = _nested(_nested(config.get("defaultTags")).get("tags"))
    if isinstance(own, Unknown) or has_unknown([*as_map(own).values(), *defaults.values()]):
        return UNKNOWN
    ignored = _nested(config.get("ignoreTags"))
    keys = ignored.get("keys") or ()
    prefixes = tuple(str(item) for item in ignored.get("keyPrefixes") or ())
    return {
        key: value
        for key, value in {**defaults, **as_map(own)}.items()
        if key not in keys and not key.startswith(prefixes or ("\0",))
    }


def tag_problems(inputs: Inputs) -> Iterator[Problem]:
    """Too many tags, keys or values that are too long, reserved or ill-formed."""
    everything = merged_tags(inputs.values, inputs.config)
    if is_mapping(everything) and len(as_map(everything)) > _MOST_TAGS:
        yield Problem(
            "tags",
            f"{len(as_map(everything))} tags with the provider's; "
            f"at most {_MOST_TAGS} are allowed",
        )
    strict = not inputs.token.startswith(_ANY_CHARACTER)
    for key, value in as_map(inputs.values.get("tags")).items():
        yield from _one_tag_problems(f"tags.{key}", key, value, strict)


def default_tag_problems(config: Properties) -> Iterator[Problem]:
    """The same for the provider's default tags."""
    for key, value in _nested(_nested(config.get("defaultTags")).get("tags")).items():
        yield from _one_tag_problems(f"defaultTags.tags.{key}", key, value, strict=False)


def _one_tag_problems(path: str, key: str, value: object, strict: bool) -> Iterator[Problem]:
    if not 1 <= len(key) <= _LONGEST_KEY:
        yield Problem(path, f"the key has {len(key)} characters; allowed: 1 to {_LONGEST_KEY}")
    if key.lower().startswith("aws:"):
        yield Problem(
            path, f"the key {key!r} begins with 'aws:', which is kept for AWS; rename it"
        )
    if strict and _TAG_CHARACTERS.fullmatch(key) is None:
        yield Problem(
            path, f"the key {key!r} isn't allowed; use letters, digits, spaces and _.:/=+-@"
        )
    if not isinstance(value, str):
        return
    if len(value) > _LONGEST_VALUE:
        yield Problem(
            path, f"the value has {len(value)} characters; at most {_LONGEST_VALUE} are allowed"
        )
    if strict and _TAG_CHARACTERS.fullmatch(value) is None:
        yield Problem(
            path, f"the value {value!r} isn't allowed; use letters, digits, spaces and _.:/=+-@"
        )


def _nested(value: object) -> Mapping[str, Any]:
    """A nested setting, which the engine may hand over as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return as_map(value)


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
        return list(default_tag_problems(given))

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
        found = list(relations.exceeded(resource, world)) if id is None else []
        if kind is None:
            return found
        world = self._seen(world, Inputs(inputs, config))
        resource = replace(resource, world=world)
        found += relations.broken_references(kind, resource, world)
        found += relations.taken(kind, resource, world, id)
        for crosscheck in kind.crosschecks:
            found += crosscheck(resource)
        return found

    def creation_problems(
        self, token: str, inputs: Properties, config: Properties
    ) -> list[Problem]:
        """What only a resource that exists already may ask for."""
        given, kind = Inputs(inputs, config, canonical(token)), kind_of(token)
        rules = kind.creation_rules if kind is not None else ()
        return [problem for rule in rules for problem in rule(given)]

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

    def is_guessed(self, token: str) -> bool:
        """Whether no service of the sandbox's describes the type."""
        return kind_of(token) is None

    def outputs(
        self, token: str, id: str, inputs: Properties, config: Properties, world: World
    ) -> Properties:
        """The inputs, and the ARN, region, tags and whatever else the service computes."""
        seen = self._seen(world, Inputs(inputs, config))
        wanted = Resource(inputs, config, canonical(token), world=seen, id=id)
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
            found["tagsAll"] = merged_tags(inputs, config)
        if kind is not None and kind.computed is not None:
            for key, value in kind.computed(wanted).items():
                if key not in inputs or inputs[key] is None or is_mapping(value):
                    found[key] = value
        return found

    def taken_along(self, token: str, made: Made, world: World) -> list[Made]:
        """Nothing: whatever AWS makes in what is deleted is a part of it here."""
        del token, made, world
        return []

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
        return queries.answer(token, args, config, self._seen(world, Inputs(args, config)))

    def _seen(self, world: World, asked: Inputs) -> World:
        """All that exists where something is asked for: what was made, and what AWS gives."""
        region = region_of(asked)

        def answered(token: str, id: str, inputs: Properties) -> Properties:
            return self.outputs(token, id, inputs, {"region": region}, world)

        return WithDefaultNetworks(world, region, answered)


def _problems(wanted: Inputs) -> Iterator[Problem]:
    kind, known = kind_of(wanted.token), shape(wanted.token)
    if known is not None and known.regional:
        yield from region_name("region")(wanted)
    if known is not None and known.taggable:
        yield from tag_problems(wanted)
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
