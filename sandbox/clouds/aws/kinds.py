"""How the model describes one type of resource: its id and ARN, its rules, what it refers to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from falaj.sandbox.clouds.aws.draft import Draft
from falaj.sandbox.clouds.model import Problem, World

Rule: TypeAlias = Callable[[Draft], Iterable[Problem]]
"""What is wrong with the inputs by themselves."""

Crosscheck: TypeAlias = Callable[[Draft, World, "str | None"], Iterable[Problem]]
"""What is wrong given all that exists; the last argument is the resource's id in an update."""

Computed: TypeAlias = Callable[["Draft", str, World], Mapping[str, Any]]
"""Outputs beyond the inputs, the ARN, the region and the tags; takes the resource's id."""


@dataclass(frozen=True)
class Reference:
    """An input that names another resource."""

    path: str
    to: tuple[str, ...]
    """Tokens of the types that may be meant."""
    by: tuple[str, ...] = ("id",)
    """Which of the other's outputs the input holds: ``id``, ``arn``, ``name`` …"""
    holds: bool = True
    """Whether the other can't be deleted as long as this resource refers to it."""
    lets_go: tuple[str, ...] = ()
    """Types of ``to`` that can be deleted nevertheless: what is referred to isn't theirs alone."""
    regional: bool = True
    """Whether the other must be in the same region."""


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


@dataclass(frozen=True)
class Kind:
    """One type of resource."""

    id: str | Callable[[Draft], str] = ""
    """A template (see `templates`), or a function of the inputs."""
    arn: str = ""
    """A template of what follows the partition; ``*`` where the id is the ARN."""
    replaces: tuple[str, ...] = ()
    """Properties a change of which replaces the resource."""
    name: AutoName | None = None
    rules: tuple[Rule, ...] = ()
    references: tuple[Reference, ...] = ()
    crosschecks: tuple[Crosscheck, ...] = ()
    unique: tuple[str, ...] = ()
    """Properties that together must be unlike every other's of this type and region."""
    everywhere: bool = False
    """Whether `unique` holds over all regions (S3 buckets, IAM)."""
    is_always_there: bool = False
    """Whether it is a setting of the account in a region, as ECR's registry policy: the service's
    call sets it, whoever did before. Several stacks can have it, and the last one's values hold;
    here it stays until no stack has it any more."""
    computed: Computed | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Outputs that hold unless an input says otherwise: what the service sets by itself."""


Kinds: TypeAlias = Mapping[str, Kind]

Answers: TypeAlias = Mapping[str, Callable[[Draft, World], Mapping[str, Any]]]
"""What answers each query, by its token.

An answer raises `LookupError` when what is asked for doesn't exist.
"""
