"""Debug lines of the SDK are left out only in runs that were told so, and no other lines are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pulumi
import pytest

from falaj.engine import debug_lines
from falaj.stacks.command import operation
from falaj.stacks.command.pulumi import Pulumi

#: A person's own, of the same beginning.
OTHERS = {"FALAJ_NO_DEBUG_LINES": "0"}


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The messages that an engine would be told."""

    class Engine:
        def __init__(self) -> None:
            self.said: list[str] = []

        def Log(self, request: object) -> None:  # noqa: N802 - named by the protocol
            self.said.append(getattr(request, "message", ""))

    engine = Engine()
    monkeypatch.setattr(pulumi.log, "get_engine", lambda: engine)
    monkeypatch.setattr(pulumi.log, "debug", pulumi.log.debug)
    return engine.said


def say_all() -> None:
    levels: list[Callable[[str], None]] = [
        pulumi.log.debug, pulumi.log.info, pulumi.log.warn, pulumi.log.error,
    ]  # fmt: skip
    for at, level in enumerate(levels):
        level(str(at))


@pytest.mark.parametrize("variables", [{}, OTHERS])
def test_who_did_not_ask_keeps_them(
    said: list[str], monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    monkeypatch.delenv("FALAJ_NO_DEBUG_LINES", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    debug_lines.leave_out()
    say_all()
    assert said == ["0", "1", "2", "3"]


def test_debug_lines_alone_are_left_out(said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in debug_lines.LEFT_OUT.items():
        monkeypatch.setenv(name, value)
    debug_lines.leave_out()
    say_all()
    assert said == ["1", "2", "3"]


def test_an_operation_whose_events_are_read_has_none() -> None:
    class Engine:
        def __init__(self) -> None:
            self.variables: dict[str, str] = {}

        def run(self, arguments: list[str], variables: dict[str, str], **_: Any) -> int:
            self.variables = variables
            return 0

    quiet, shown = Engine(), Engine()
    operation.run(cast("Pulumi", quiet), ["preview"], "previewing")
    assert quiet.variables.items() >= debug_lines.LEFT_OUT.items()
    # The engine's own display shows them to who asks for that.
    operation.shown_by_the_engine(cast("Pulumi", shown), ["preview"], {})
    assert not shown.variables
