"""The controls that rules refer to, with how sure their ids are and what no rule can prove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import cache
from importlib import resources
from typing import Annotated, Any, Final, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from falaj.policies.model import PolicyError, Rule


class Confidence(Enum):
    """Where a control's id and title come from, surest first."""

    CONFIRMED = "confirmed"
    DOCUMENT = "document"
    UNVERIFIED = "unverified"


T = TypeVar("T")

_FILE: Final = "controls.yaml"
_Sentence = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]


class _Control(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Annotated[str, StringConstraints(pattern=r"^[A-Z0-9][A-Za-z0-9.]*$")]
    title: _Sentence
    confidence: Confidence
    meaning: _Sentence
    beyond: _Sentence
    also: tuple[str, ...] = ()
    without_rule: str = ""


class _Framework(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    name: _Sentence
    version: Annotated[str, StringConstraints(min_length=1)]
    read: date
    sources: Annotated[tuple[_Sentence, ...], Field(min_length=1)]
    note: str
    controls: tuple[_Control, ...]

    @model_validator(mode="after")
    def _once(self) -> _Framework:
        ids = [each.id for each in self.controls]
        if len(set(ids)) != len(ids):
            raise ValueError(f"framework {self.key!r} repeats an id")
        return self


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    frameworks: tuple[_Framework, ...]


@dataclass(frozen=True)
class Framework:
    """A law, regulation, standard or benchmark.

    Attributes:
        key: the first part of references, such as ``iso27001``.
        name: its name.
        version: the version that the ids belong to; ids move between versions.
        read: when its sources were read.
        sources: addresses and documents that were read.
        note: what to know before using its ids.
    """

    key: str
    name: str
    version: str
    read: date
    sources: tuple[str, ...]
    note: str


@dataclass(frozen=True)
class Control:
    """One demand of a framework.

    Attributes:
        framework: where it stands.
        id: its number there, such as ``A.8.24``.
        title: its subject.
        confidence: how sure the id and the title are.
        meaning: what infrastructure can do for it, in our words.
        beyond: what infrastructure can't do for it.
        also: references of controls whose rules serve this one as well.
        without_rule: why no rule serves it; empty where one does.
    """

    framework: Framework
    id: str
    title: str
    confidence: Confidence
    meaning: str
    beyond: str
    also: tuple[str, ...] = ()
    without_rule: str = ""

    @property
    def reference(self) -> str:
        """As rules write it, ``iso27001:A.8.24``."""
        return f"{self.framework.key}:{self.id}"

    def __str__(self) -> str:
        return f"{self.framework.name} ({self.framework.version}) {self.id}"


@cache
def _catalogue() -> Mapping[str, tuple[Framework, tuple[Control, ...]]]:
    text = (
        resources.files(__package__ or "falaj.policies.controls")
        .joinpath(_FILE)
        .read_text("utf-8")
    )
    return read_catalogue(yaml.safe_load(text))


def read_catalogue(document: Any) -> dict[str, tuple[Framework, tuple[Control, ...]]]:
    """Frameworks with their controls, by key. Raises PolicyError where the document is wrong."""
    try:
        given = _Document.model_validate(document)
    except ValidationError as error:
        raise PolicyError(f"{_FILE} can't be used: {error}") from None
    found: dict[str, tuple[Framework, tuple[Control, ...]]] = {}
    for each in given.frameworks:
        framework = Framework(
            each.key, each.name, each.version, each.read, each.sources, each.note.strip()
        )
        if each.key in found:
            raise PolicyError(f"{_FILE} has the framework {each.key!r} twice")
        found[each.key] = (
            framework,
            tuple(Control(framework, **dict(one)) for one in each.controls),
        )
    every = {one.reference: one for _, each in found.values() for one in each}
    for one in every.values():
        # One step only: rules serve what they name and what says that it is served with that.
        wrong = [each for each in one.also if each not in every]
        if wrong:
            raise PolicyError(
                f"{_FILE}: {one.reference} names {', '.join(wrong)}, which aren't there"
            )
    return found


@cache
def _by_reference() -> Mapping[str, Control]:
    return {each.reference: each for each in controls()}


def frameworks() -> tuple[Framework, ...]:
    """All frameworks, the country's own first; some have no control that was read."""
    return tuple(framework for framework, _ in _catalogue().values())


def controls(framework: str = "") -> tuple[Control, ...]:
    """The controls of a framework, or of all. Raises PolicyError for an unknown framework."""
    if framework and framework not in _catalogue():
        raise PolicyError(
            f"no framework is called {framework!r}; there are {', '.join(_catalogue())}"
        )
    return tuple(
        each
        for key, (_, found) in _catalogue().items()
        if key == framework or not framework
        for each in found
    )


def control(reference: str) -> Control:
    """The control of a reference such as ``iso27001:A.8.24``. Raises PolicyError for others."""
    try:
        return _by_reference()[reference]
    except KeyError:
        key, _, _ = reference.partition(":")
        ids = ", ".join(each.id for each in controls(key))
        raise PolicyError(f"no control is called {reference!r}; {key} has {ids}") from None


def by_control(served: Iterable[tuple[T, Iterable[str]]]) -> dict[str, tuple[T, ...]]:
    """What serves each control, by the control's reference; empty where nothing does.

    Args:
        served: whatever serves controls, each with the references that it names. It serves those
            that name one of them under `Control.also` as well.

    Raises:
        PolicyError: a reference is unknown.
    """
    named: dict[str, list[T]] = {each.reference: [] for each in controls()}
    for one, references in served:
        for reference in references:
            named[control(reference).reference].append(one)
    found: dict[str, tuple[T, ...]] = {}
    for each in controls():
        serving = [*named[each.reference], *(one for other in each.also for one in named[other])]
        found[each.reference] = tuple({id(one): one for one in serving}.values())
    return found


def rules_by_control(rules: Iterable[Rule]) -> dict[str, tuple[Rule, ...]]:
    """The rules that serve each control, by reference. Raises PolicyError for unknown ones."""
    return by_control((each, each.controls) for each in rules)


def not_covered(rules: Iterable[Rule]) -> Iterator[Control]:
    """Controls that no rule serves; `Control.without_rule` says why."""
    for reference, serving in rules_by_control(rules).items():
        if not serving:
            yield control(reference)
