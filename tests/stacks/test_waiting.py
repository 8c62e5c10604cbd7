"""An update that a cluster isn't ready for yet is run again, for a while, and nothing else is."""

from __future__ import annotations

import dataclasses

import pytest

from falaj.stacks.command.lifecycle import PATIENCE, PAUSE, not_counted, until_counted
from falaj.stacks.command.operation import Outcome

SAID = (
    'error: jobsets.jobset.x-k8s.io "credit" is forbidden: status unknown for quota: '
    "team-counts, resources: count/jobsets.jobset.x-k8s.io"
)
DONE = Outcome(0, {"create": 3}, {}, 0, was_interrupted=False, seconds=1.0, printed="")
UNKNOWN = dataclasses.replace(DONE, status=255, printed=f"updating\n  {SAID}\n", changes={})


class Clock:
    """Time that passes only when somebody waits, or an update runs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.mark.parametrize(
    "outcome",
    [
        DONE,
        dataclasses.replace(DONE, printed=SAID),
        dataclasses.replace(UNKNOWN, was_interrupted=True),
        dataclasses.replace(UNKNOWN, violations=1),
        dataclasses.replace(UNKNOWN, printed="error: exceeded quota: team-counts, requested: 1"),
        dataclasses.replace(UNKNOWN, printed=""),
    ],
)
def test_what_is_not_waited_for(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    assert not_counted(outcome) is None
    clock = Clock()
    assert until_counted(lambda: outcome, pause=clock.pause, clock=lambda: clock.now) is outcome
    assert clock.pauses == []
    assert capsys.readouterr().out == ""


def test_an_update_goes_on_once_the_cluster_counts(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    ends = iter([UNKNOWN, UNKNOWN, DONE])
    found = until_counted(lambda: next(ends), pause=clock.pause, clock=lambda: clock.now)
    assert found is DONE
    assert clock.pauses == [PAUSE, PAUSE]
    said = capsys.readouterr().out
    assert said.count("doesn't count count/jobsets.jobset.x-k8s.io yet (quota team-counts)") == 2


def test_it_ends_with_what_to_do_when_the_cluster_never_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()

    def update() -> Outcome:
        clock.now += 20
        return UNKNOWN

    found = until_counted(update, pause=clock.pause, clock=lambda: clock.now)
    assert found is UNKNOWN
    assert 5 <= len(clock.pauses) <= PATIENCE / PAUSE
    assert clock.now <= PATIENCE + PAUSE
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert "look at its quota controller" in last
    assert "then run this again" in last
