"""How AWS makes the ids and names of one type of resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import ResourceKind


@dataclass(frozen=True)
class AutoName:
    """A name that the provider makes up when none is given."""

    property: str = "name"
    longest: int = 255
    separator: str = "-"
    lower: bool = False
    prefix: str = ""
    unless: tuple[str, ...] = ("namePrefix",)
    """Inputs that make a name unnecessary."""


@dataclass(frozen=True, kw_only=True)
class AwsKind(ResourceKind):
    """One type of AWS."""

    id: str | Callable[[Inputs], str] = ""
    """A template (see `templates`), or a function of the inputs."""
    arn: str = ""
    """A template of what follows the partition; ``*`` where the id is the ARN."""
    name: AutoName | None = None
    unique: tuple[str, ...] = ()
    """Properties that together must be unlike every other's of this type and region."""
    everywhere: bool = False
    """Whether `unique` holds over all regions (S3 buckets, IAM)."""


AwsKinds: TypeAlias = Mapping[str, AwsKind]
