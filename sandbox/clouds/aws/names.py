"""Names that the provider makes up: the resource's name with a suffix, within the length allowed.

As in the bridged provider (pulumi-aws, ``provider/autonaming.go``), every type with an optional
input ``name`` gets one, of 255 characters at most unless the type says less, ending in a dash and
seven hexadecimal digits. There they are random; here they follow from the URN.
"""

from __future__ import annotations

from falaj.sandbox.clouds.aws.hashes import hexdigits
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind
from falaj.sandbox.clouds.aws.sdk import Shape
from falaj.sandbox.clouds.model import Properties

SUFFIX = 7


def automatic_name(
    kind: AwsKind | None, shape: Shape | None, name: str, inputs: Properties, urn: str
) -> dict[str, str]:
    """The made-up name, by its property; nothing where one was given or none is needed."""
    rule = kind.name if kind is not None and kind.name is not None else AutoName()
    if shape is None or rule.property not in shape.inputs or rule.property in shape.required:
        return {}
    if any(inputs.get(key) is not None for key in (rule.property, *rule.unless)):
        return {}
    return {rule.property: compose(rule, name, urn)}


def compose(rule: AutoName, name: str, urn: str) -> str:
    """The name that a resource gets when none is given."""
    ending = rule.separator + hexdigits(SUFFIX, urn, "name")
    stem = name[: max(rule.longest - len(rule.prefix) - len(ending), 0)]
    full = rule.prefix + stem + ending
    return full.lower() if rule.lower else full
