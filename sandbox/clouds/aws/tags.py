"""Tags: the provider's default ones, and what AWS allows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.inputs import Inputs, as_map
from falaj.sandbox.clouds.model import Problem, Properties
from falaj.wire import UNKNOWN, Unknown, has_unknown

# "Tag naming limits and requirements", AWS general reference (Tagging AWS resources).
_MOST: Final = 50
_KEY: Final = 128
_VALUE: Final = 256
_CHARACTERS: Final = re.compile(r"[\w\s.:/=+\-@]*")
# Services that take more characters than the general rule: EC2 and what lies on it take any.
_ANY_CHARACTER: Final = ("aws:ec2/", "aws:vpc/", "aws:autoscaling/", "aws:ebs/")


def merged(inputs: Properties, config: Properties) -> Any:
    """``tagsAll``: the provider's default tags, overridden by the resource's own.

    As pulumi-aws has it (``provider/tags.go``): unknown when any of them is.
    """
    own = inputs.get("tags")
    defaults = _setting(_setting(config.get("defaultTags")).get("tags"))
    if isinstance(own, Unknown) or has_unknown([*as_map(own).values(), *defaults.values()]):
        return UNKNOWN
    ignored = _setting(config.get("ignoreTags"))
    keys = ignored.get("keys") or ()
    prefixes = tuple(str(item) for item in ignored.get("keyPrefixes") or ())
    return {
        key: value
        for key, value in {**defaults, **as_map(own)}.items()
        if key not in keys and not key.startswith(prefixes or ("\0",))
    }


def problems(inputs: Inputs) -> Iterator[Problem]:
    """Too many tags, keys or values that are too long, reserved or ill-formed."""
    everything = merged(inputs.values, inputs.config)
    if isinstance(everything, Mapping) and len(as_map(everything)) > _MOST:
        yield Problem(
            "tags",
            f"{len(as_map(everything))} tags with the provider's; at most {_MOST} are allowed",
        )
    strict = not inputs.token.startswith(_ANY_CHARACTER)
    for key, value in as_map(inputs.values.get("tags")).items():
        yield from _tag(f"tags.{key}", key, value, strict)


def default_tag_problems(config: Properties) -> Iterator[Problem]:
    """The same for the provider's default tags."""
    for key, value in _setting(_setting(config.get("defaultTags")).get("tags")).items():
        yield from _tag(f"defaultTags.tags.{key}", key, value, strict=False)


def _tag(path: str, key: str, value: object, strict: bool) -> Iterator[Problem]:
    if not 1 <= len(key) <= _KEY:
        yield Problem(path, f"the key has {len(key)} characters; allowed: 1 to {_KEY}")
    if key.lower().startswith("aws:"):
        yield Problem(
            path, f"the key {key!r} begins with 'aws:', which is kept for AWS; rename it"
        )
    if strict and _CHARACTERS.fullmatch(key) is None:
        yield Problem(
            path, f"the key {key!r} isn't allowed; use letters, digits, spaces and _.:/=+-@"
        )
    if not isinstance(value, str):
        return
    if len(value) > _VALUE:
        yield Problem(path, f"the value has {len(value)} characters; at most {_VALUE} are allowed")
    if strict and _CHARACTERS.fullmatch(value) is None:
        yield Problem(
            path, f"the value {value!r} isn't allowed; use letters, digits, spaces and _.:/=+-@"
        )


def _setting(value: object) -> Mapping[str, Any]:
    """A nested setting, which the engine may hand over as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return as_map(value)
