"""What the workloads' options may be, as the workloads themselves say.

The file beside this one is written by ``python -m falaj.workloads.bounds``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from falaj.components.specification.limits import Between, OneOf, TextRule

_FILE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class WorkloadBound(Between):
    """What one option of a workload may be."""

    whole: bool = False
    """Whether it has to be a whole number."""
    default: Any = None
    """The number that holds where none is given; None: that isn't always the same."""


@dataclass(frozen=True)
class WorkloadChoice(OneOf):
    """The words that one option of a workload takes."""

    default: str = ""
    """The one that holds where none is given."""

    @property
    def words(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(map(str, self.values))


@dataclass(frozen=True)
class WorkloadForm(TextRule):
    """The form of one text that a workload takes."""

    default: str | None = None
    """The text that holds where none is given; None: that isn't always the same."""


@cache
def _all() -> dict[str, dict[str, Any]]:
    return json.loads(_FILE.read_text(encoding="utf-8"))


def bound(workload: str, option: str) -> WorkloadBound:
    """The bound of an option.

    Args:
        workload: ``dataset``, ``training``, ``optimization``, ``service`` or ``drift``.
        option: its name with ``_``.

    Raises:
        KeyError: there is no such option.
    """
    found = _all()[workload][option]
    return WorkloadBound(
        found["low"], found["high"], whole=bool(found["whole"]), default=found.get("default")
    )


def choice(workload: str, option: str) -> WorkloadChoice:
    """The words that an option takes, and its default.

    Args:
        workload: as `bound` takes it, or ``sweep``.
        option: its name with ``_``.

    Raises:
        KeyError: there is no such option.
    """
    found = _all()[workload][option]
    return WorkloadChoice(tuple(found["words"]), default=found["default"])


def form(workload: str, option: str) -> WorkloadForm:
    """The form of a text, and its default.

    Args:
        workload: ``registry``, ``experiment``, ``tracking``, ``watch`` or ``repair``.
        option: its name with ``_``.

    Raises:
        KeyError: there is no such text.
    """
    found = _all()[workload][option]
    return WorkloadForm(
        f"^{found['pattern']}$", found["rule"], found["example"], found.get("default")
    )


def endings(of: str) -> tuple[str, ...]:
    """How names of files end.

    Args:
        of: ``texts`` or ``conversations``.

    Raises:
        KeyError: nothing is known of them.
    """
    return tuple(map(str, _all()["endings"][of]))


def decimals() -> OneOf:
    """What may stand before the decimals of a number in a CSV file."""
    return OneOf(tuple(map(str, _all()["decimals"])))


@dataclass(frozen=True)
class FreeHeader(TextRule):
    """Names of headers that mean nothing to a server."""

    def allows(self, value: object) -> bool:
        """Whether a text is such a name, in whatever case."""
        return super().allows(value) and str(value).lower() not in _all()["experiment_taken"]


def experiment_key() -> FreeHeader:
    """The name of the header that an experiment goes by."""
    known = form("experiment", "key")
    return FreeHeader(known.pattern, known.rule, known.example)


def fixed(of: str, name: str) -> int:
    """A number that is always the same.

    Args:
        of: ``image``, or ``gang`` for processes that start together.
        name: of an image ``user`` or ``server_port``; of a gang ``rendezvous_port`` or
            ``most_horovod_processes``.

    Raises:
        KeyError: there is no such number.
    """
    return int(_all()[of][name])
