"""What a run says, and what makes it stop."""

from __future__ import annotations

import json
import os
import signal

import pytest

from falaj.workloads.training.progress import Progress, duration
from falaj.workloads.training.stopping import StopRequest


def test_json_events_are_single_lines_without_nan(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress("json", True, lambda: None)
    progress.emit("epoch", "two\nlines", loss=float("nan"), epoch=1, rmse=float("inf"))
    (line,) = capsys.readouterr().out.splitlines()
    said = json.loads(line)
    assert said == {
        "event": "epoch", "loss": None, "epoch": 1, "rmse": None, "message": "two\nlines",
    }  # fmt: skip


def test_text_events_are_their_message(capsys: pytest.CaptureFixture[str]) -> None:
    Progress("text", True, lambda: None).emit("start", "hello", epoch=0)
    Progress("text", False, lambda: None).emit("start", "from another process", epoch=0)
    assert capsys.readouterr().out == "hello\n"


@pytest.mark.parametrize(("seconds", "shown"), [
    (-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (60, "1 min 00 s"), (3725, "62 min 05 s"),
])  # fmt: skip
def test_durations_for_people(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_signals_ask_for_a_stop() -> None:
    kept = {s: signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        stop = StopRequest()
        stop.install()
        assert not stop.asked()
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.asked()
        assert stop.reason == "SIGTERM was received"
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def test_adopted_process_stops_unless_under_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequest()
    kept = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        outliving = StopRequest()
    finally:
        signal.signal(signal.SIGHUP, kept)
    parent = os.getppid()
    monkeypatch.setattr(os, "getppid", lambda: parent + 1)
    assert stop.asked()
    assert "has ended" in (stop.reason or "")
    assert not outliving.asked()
