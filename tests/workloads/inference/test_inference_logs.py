"""The audit chain: every change to it, or to what it covers, is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from falaj.workloads.errors import IntegrityError
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.process import logs
from falaj.workloads.inference.process.logs import Logs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    written = Logs(tmp_path / "logs")
    written.event("started")
    for batch in range(4):
        lines = "".join(f'{{"line":"{batch}-{n}"}}\n' for n in range(3))
        written.access(lines.encode(), callers={"a": 3})
    written.event("stopped")
    written.close()
    return tmp_path / "logs"


def edit(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


CHANGES: dict[str, tuple[str, Callable[[list[str]], list[str]]]] = {
    "record changed": ("audit.jsonl", lambda ls: [ls[0].replace("started", "STARTED"), *ls[1:]]),
    "record taken out": ("audit.jsonl", lambda ls: ls[:2] + ls[3:]),
    "first record taken out": ("audit.jsonl", lambda ls: ls[1:]),
    "records swapped": ("audit.jsonl", lambda ls: [ls[1], ls[0], *ls[2:]]),
    "record doubled": ("audit.jsonl", lambda ls: [ls[0], *ls]),
    "nonsense put in": ("audit.jsonl", lambda ls: [*ls[:2], "hello\n", *ls[2:]]),
    "nonsense at the end": ("audit.jsonl", lambda ls: [*ls, "hello\n"]),
    "access line changed": ("access.jsonl", lambda ls: [*ls[:5], '{"line":"x"}\n', *ls[6:]]),
    "access line taken out": ("access.jsonl", lambda ls: ls[:4] + ls[5:]),
    "access line put in": ("access.jsonl", lambda ls: [*ls, ls[0]]),
    "first access line changed": ("access.jsonl", lambda ls: [ls[0].replace("0", "9"), *ls[1:]]),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_change_is_found(folder: Path, name: str) -> None:
    file, change = CHANGES[name]
    edit(folder / file, change)
    with pytest.raises(IntegrityError):
        logs.verify(folder)


def test_no_log_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(InferenceError, match="no audit log"):
        logs.verify(tmp_path)


def test_untouched_logs_are_intact(folder: Path) -> None:
    assert logs.verify(folder) == {"records": 6, "access_lines": 12, "removed_lines": 0}


def test_the_chain_goes_on_after_a_restart(folder: Path) -> None:
    again = Logs(folder)
    again.event("started")
    again.access(b"{}\n")
    again.close()
    assert logs.verify(folder)["records"] == 8


def test_a_record_cut_short_by_a_power_cut_is_told(folder: Path) -> None:
    path = folder / "audit.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    again = Logs(folder)
    again.event("started")
    again.close()
    records = path.read_text().splitlines()[-2:]
    assert json.loads(records[0])["event"] == "recovered"
    assert logs.verify(folder)["records"] == 7


def test_rotated_files_are_part_of_the_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "ACCESS_BYTES", 2000)
    monkeypatch.setattr(logs, "AUDIT_BYTES", 4000)
    written = Logs(tmp_path / "logs")
    for batch in range(100):
        written.access(b'{"batch":%d,"filler":"%b"}\n' % (batch, b"x" * 300))
    written.close()
    report = logs.verify(tmp_path / "logs")
    assert report["records"] == 100
    assert report["access_lines"] + report["removed_lines"] == 100
    assert report["removed_lines"] > 0
    assert len(list((tmp_path / "logs").glob("access.jsonl*"))) == logs.ACCESS_KEPT + 1
    assert len(list((tmp_path / "logs").glob("audit-*.jsonl"))) > 3
    again = Logs(tmp_path / "logs")
    again.event("started")
    again.close()
    assert logs.verify(tmp_path / "logs")["records"] == 101


def test_a_disk_that_recovers_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = Logs(tmp_path / "logs")
    written.access(b"{}\n")
    write = logs.os.write

    def full(descriptor: int, data: bytes) -> int:
        # A disk takes a part of a write before it is full.
        write(descriptor, bytes(data[:10]))
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logs.os, "write", full)
    for _ in range(3):
        written.access(b"{}\n{}\n")
    monkeypatch.setattr(logs.os, "write", write)
    assert written.dropped == 9
    written.access(b"{}\n")
    written.close()
    told = capsys.readouterr().err
    assert told.count("access.jsonl") == 1
    assert told.count("audit.jsonl") == 1
    assert logs.verify(tmp_path / "logs")["access_lines"] == 2
    last = json.loads((tmp_path / "logs/audit.jsonl").read_text().splitlines()[-1])
    assert last["dropped_lines"] == 9
