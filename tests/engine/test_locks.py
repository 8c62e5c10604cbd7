from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.engine.backend import Lock, clear_stale_locks, is_locked


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write(backend: Path, **changes: Any) -> Path:
    content = {
        "pid": dead_process(),
        "username": "someone",
        "hostname": socket.gethostname(),
        "timestamp": datetime.now(UTC).isoformat(),
    } | changes
    path = backend / ".pulumi" / "locks" / "organization" / "tiny" / "dev" / "1.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def cleared(backend: Path) -> tuple[int, list[str]]:
    lines: list[str] = []
    return clear_stale_locks(backend.as_uri(), lines.append), lines


def test_a_lock_of_a_living_process_stays(tmp_path: Path) -> None:
    path = write(tmp_path, pid=os.getpid())
    assert cleared(tmp_path) == (0, [])
    assert path.exists()


def test_a_lock_of_another_host_stays(tmp_path: Path) -> None:
    path = write(tmp_path, hostname="another-machine")
    assert cleared(tmp_path) == (0, [])
    assert path.exists()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"pid": "1"}', "null", '{"pid": true}'])
def test_what_is_no_lock_stays(content: str, tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_text(content)
    assert cleared(tmp_path) == (0, [])
    assert path.exists()


def test_a_lock_of_a_dead_process_goes_and_is_mentioned(tmp_path: Path) -> None:
    path = write(tmp_path)
    count, lines = cleared(tmp_path)
    assert count == 1
    assert "organization/tiny/dev" in lines[0]
    assert not path.exists()


def test_a_number_that_another_process_has_got_since_is_no_owner(tmp_path: Path) -> None:
    before = datetime.now(UTC) - timedelta(days=400)
    path = write(tmp_path, pid=os.getpid(), timestamp=before.isoformat())
    assert cleared(tmp_path)[0] == 1
    assert not path.exists()


def test_the_engines_own_timestamps_are_read() -> None:
    # As Go writes them: nanoseconds and an offset.
    text = '{"pid": 1, "hostname": "h", "timestamp": "2026-11-21T08:15:30.123456789+04:00"}'
    assert Lock.parse(text).written == datetime(2026, 11, 21, 4, 15, 30, 123456, UTC).timestamp()


@pytest.mark.parametrize("url", ["", "https://api.pulumi.com", "s3://bucket", "file:///nowhere"])
def test_other_backends_are_left_alone(url: str) -> None:
    assert clear_stale_locks(url) == 0


@given(st.text(max_size=80) | st.dictionaries(st.text(max_size=9), st.integers()).map(json.dumps))
def test_any_text_is_a_lock_or_a_value_error(text: str) -> None:
    try:
        assert Lock.parse(text).pid > 0
    except ValueError as error:
        assert str(error)


def test_lock_of_a_dead_process_that_nobody_waited_for_is_stale() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    try:
        while psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert Lock(ended.pid, socket.gethostname(), time.time()).is_stale()
    finally:
        ended.wait()


def test_a_stack_is_locked_by_a_living_run_of_its_own(tmp_path: Path) -> None:
    url = tmp_path.as_uri()
    assert not is_locked(url, "tiny", "dev")
    path = write(tmp_path, pid=os.getpid())
    assert is_locked(url, "tiny", "dev")
    assert not is_locked(url, "tiny", "prod")
    assert not is_locked(url, "other", "dev")
    assert not is_locked("s3://bucket", "tiny", "dev")
    write(tmp_path)
    assert not is_locked(url, "tiny", "dev")
    path.write_text("{}")
    assert not is_locked(url, "tiny", "dev")
