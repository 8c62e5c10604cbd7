"""How a cloud's model describes one type of resource: its rules, references and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem, World

Rule: TypeAlias = Callable[[Inputs], Iterable[Problem]]
"""What is wrong with the inputs by themselves."""

Crosscheck: TypeAlias = Callable[[Resource], Iterable[Problem]]
"""What is wrong given all that exists."""

Computed: TypeAlias = Callable[[Resource], Mapping[str, Any]]
"""Outputs beyond those that every resource of the cloud has."""

Answers: TypeAlias = Mapping[str, Callable[[Inputs, World], Mapping[str, Any]]]
"""What answers each query, by its token.

An answer raises `LookupError` when what is asked for doesn't exist.
"""


@dataclass(frozen=True)
class Reference:
    """An input that names another resource."""

    path: str
    to: tuple[str, ...] = ()
    """The types that may be meant, by the names that the cloud's ids and tokens have."""
    by: tuple[str, ...] = ("id",)
    """Which of the other's outputs the input holds: ``id``, ``arn``, ``name`` …"""
    holds: bool = True
    """Whether the other can't be deleted as long as this resource refers to it."""
    lets_go: tuple[str, ...] = ()
    """Types of ``to`` that can be deleted nevertheless: what is referred to isn't theirs alone."""
    regional: bool = True
    """Whether the other must be in the same region."""


@dataclass(frozen=True, kw_only=True)
class ResourceKind:
    """One type of resource. Each cloud adds how its ids and names are made."""

    replaces: Iterable[str] = ()
    """Properties a change of which replaces the resource."""
    rules: tuple[Rule, ...] = ()
    references: tuple[Reference, ...] = ()
    crosschecks: tuple[Crosscheck, ...] = ()
    delete_blockers: tuple[Crosscheck, ...] = ()
    """What keeps the resource from being deleted, beside those that refer to it."""
    is_always_there: bool = False
    """Whether it is a setting of the account, as ECR's registry policy or Defender's plans: the
    service's call sets it, whoever did before. Several stacks can have it, and the last one's
    values hold; here it stays until no stack has it any more."""
    computed: Computed | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Outputs that hold unless an input says otherwise: what the service sets by itself."""
