"""What keeps records of runs, for those who write them: a tracking server, or a file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

ATTEMPT: Final = "falaj.attempt"
"""Tag that names a run, whatever broke off before its identifier was noted."""
LONGEST_VALUE: Final = 500
"""Of a parameter or a tag, characters:
https://mlflow.org/docs/latest/api_reference/rest-api.html#request-limits"""

CONTEXT: Final = "mlflow.data.context"
TRAINED_ON: Final = "training"
"""Tag of a dataset that a run was trained on, and its value."""
_NO_KEY: Final = re.compile(r"[^A-Za-z0-9_. /-]")


class TrackingError(Exception):
    """What the server or the file should have got and hasn't; the message says why."""


class Store(Protocol):
    """Where runs are kept. What is given again changes nothing.

    Each method raises `TrackingError` where the store can't be used, or refuses.
    """

    def run_of(self, attempt: str, name: str, begun: int, tags: Mapping[str, Any]) -> str:
        """The identifier of the run of this attempt; it is made where it isn't there.

        Args:
            attempt: names it, whatever broke off before its identifier was noted.
            name: for people.
            begun: when it began, Unix time in ms.
            tags: what it gets when it is made.
        """
        ...

    def log_parameters(self, run: str, parameters: Mapping[str, Any]) -> None:
        """Give a run its parameters, which never change."""
        ...

    def log_tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """Give a run tags, or other values of those that it has."""
        ...

    def log_figures(self, run: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Give a run figures.

        Args:
            run: its identifier.
            rows: ``key``, ``value`` (a number, or the word of one that JSON has none for),
                ``timestamp`` (Unix time in ms) and ``step`` of each.
        """
        ...

    def log_dataset(self, run: str, dataset: Mapping[str, str]) -> None:
        """Note what a run was trained on.

        Args:
            run: its identifier.
            dataset: ``name``, ``digest``, ``source_type``, ``source`` and ``profile``.
        """
        ...

    def update(self, run: str, status: str, ended: int | None) -> None:
        """Say what became of a run, and when it ended, if it has (Unix time in ms)."""
        ...


def key_of(name: str) -> str:
    """A name as a figure or a tag may have it."""
    return _NO_KEY.sub("_", name)


def text_of(value: Any) -> str:
    """A value as a parameter or a tag has it."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
