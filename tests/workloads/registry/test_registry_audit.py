import json
import os
from pathlib import Path

import pytest

from falaj.workloads.errors import IntegrityError, StorageFullError
from falaj.workloads.registry import store


@pytest.fixture
def log(tmp_path: Path) -> Path:
    for version in range(4):
        store.append_event(tmp_path, "promote", {"model": "digits", "version": version})
    return tmp_path / "audit.jsonl"


@pytest.mark.parametrize("line", [0, 1, 2])
def test_changed_line_is_found(log: Path, line: int) -> None:
    lines = log.read_text().splitlines()
    lines[line] = lines[line].replace("promote", "rolback")
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(IntegrityError, match=f"line {line + 2} .*doesn't follow"):
        store.read_events(log.parent)


@pytest.mark.parametrize("change", ["removed", "repeated", "moved", "first"])
def test_changed_order_is_found(log: Path, change: str) -> None:
    lines = log.read_text().splitlines()
    lines = {
        "removed": [lines[0], *lines[2:]],
        "repeated": [lines[0], lines[0], *lines[1:]],
        "moved": [lines[0], lines[2], lines[1], lines[3]],
        "first": lines[1:],
    }[change]
    log.write_text("\n".join(lines) + "\n")
    with pytest.raises(IntegrityError, match="doesn't follow"):
        store.read_events(log.parent)


@pytest.mark.parametrize("line", ["", "{", "[]", "1", "{}", '{"previous_digest": 1}'])
def test_line_that_is_no_event_is_found(log: Path, line: str) -> None:
    log.write_text(log.read_text() + line + "\n")
    with pytest.raises(IntegrityError, match="line 5"):
        store.read_events(log.parent)


def test_log_behind_a_link_is_refused(log: Path, tmp_path: Path) -> None:
    log.rename(tmp_path / "elsewhere")
    log.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Exception, match="can't write"):
        store.append_event(tmp_path, "promote", {})


def test_full_disk_leaves_the_log_as_it_was(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = log.read_bytes()
    write = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        if offset > len(before):
            raise OSError(28, "No space left on device")
        return write(descriptor, data[:10], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StorageFullError, match="no space left"):
            store.append_event(log.parent, "promote", {})
    assert log.read_bytes() == before


def test_half_a_line_is_replaced_by_the_next_event(log: Path) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"time": "2026')
    with pytest.raises(IntegrityError, match="line 5"):
        store.read_events(log.parent)
    store.append_event(log.parent, "rollback", {"version": 9})
    events = store.read_events(log.parent)
    assert [event["action"] for event in events] == ["promote"] * 4 + ["rollback"]
    assert log.read_bytes().startswith(whole)


def test_events_say_who_and_when(log: Path) -> None:
    first = store.read_events(log.parent)[0]
    assert first["previous_digest"] == "0" * 64
    assert first["user"]
    assert first["time"].endswith("+00:00")
    assert log.stat().st_mode & 0o777 == 0o600
    assert json.loads(log.read_text().splitlines()[0]) == first


def test_no_log_yet_is_no_event(tmp_path: Path) -> None:
    assert store.read_events(tmp_path) == []
