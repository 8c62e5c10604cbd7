"""Watchers of files, which Linux counts: looked for before anything needs them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from falaj.engine.controlplane import inotify, start
from falaj.engine.errors import EngineError

_TRIED = """
import sys
from falaj.engine.controlplane import inotify
from falaj.engine.errors import EngineError

try:
    inotify.ensure(int(sys.argv[1]), raise_limit=sys.argv[2] == "raise")
except EngineError as error:
    print(error)
print(inotify.LIMIT.read_text().strip())
"""


def told(limit: int, wanted: int, word: str, *before: str) -> list[str]:
    """What is said, and the limit afterwards, as root of a namespace of users with this limit.

    Args:
        limit: the limit of the namespace.
        wanted: how many instances are asked for.
        word: whether it may be raised.
        before: what the command line begins with; default: nothing.
    """
    command = [*before, sys.executable, "-c", _TRIED, str(wanted), word]
    set_and_run = f'echo {limit} > {inotify.LIMIT} && exec "$@"'
    found = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--", "sh", "-c", set_and_run, "sh", *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")


def test_another_system_has_none_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    inotify.ensure(10**9, raise_limit=True)


@linux
@pytest.mark.parametrize(
    ("limit", "word"), [(9, "leave"), (inotify.ENOUGH, "raise"), (inotify.ENOUGH + 1, "raise")]
)
def test_as_many_as_there_are_are_given_and_nothing_is_changed(limit: int, word: str) -> None:
    assert told(limit, 9, word) == [str(limit)]


@linux
def test_too_few_are_told_with_what_to_do() -> None:
    said, limit = told(9, 10, "leave")
    assert said.startswith("the kernel doesn't give 10 watchers of files (instances of inotify)")
    assert "its limit for a user is 9, " in said
    assert said.endswith("as root: sysctl -w fs.inotify.max_user_instances=1024")
    assert limit == "9"


@linux
@pytest.mark.parametrize(
    ("hard", "remedy"),
    [("40", "beyond 40 by who isn't root: raise nofile in /etc/security/limits.conf"),
     ("4096", "ulimit -n ")],
)  # fmt: skip
def test_too_few_files_of_this_process_are_told_from_too_few_watchers(
    hard: str, remedy: str
) -> None:
    said, limit = told(1000, 60, "leave", "prlimit", f"--nofile=40:{hard}")
    assert said.startswith("this process may have 40 files open (RLIMIT_NOFILE) and has ")
    assert "no room for 60 watchers of files" in said
    assert remedy in said
    assert "sysctl" not in said
    if hard == "4096":
        # What is said to be enough is enough, and no more than that.
        needed = int(said.rpartition(" ")[2])
        assert told(1000, 60, "leave", "prlimit", f"--nofile={needed}:{hard}") == ["1000"]
        assert len(told(1000, 60, "leave", "prlimit", f"--nofile={needed - 1}:{hard}")) == 2
    assert limit == "1000"


@linux
@pytest.mark.parametrize("limit", [9, inotify.ENOUGH - 1])
def test_root_raises_the_limit_for_real_machines(limit: int) -> None:
    assert told(limit, 10, "raise") == [str(inotify.ENOUGH)]


@linux
def test_more_than_the_raised_limit_is_told() -> None:
    said, limit = told(9, inotify.ENOUGH + 1, "raise")
    assert f"doesn't give {inotify.ENOUGH + 1} watchers" in said
    assert limit == str(inotify.ENOUGH)


@linux
def test_who_may_not_raise_it_is_told_why() -> None:
    assert told(9, 9, "raise", "setpriv", "--bounding-set=-sys_resource") == ["9"]
    said, limit = told(9, 10, "raise", "setpriv", "--bounding-set=-sys_resource")
    assert "its limit for a user is 9 (" in said
    assert f"({inotify.LIMIT}: Permission denied), " in said
    assert limit == "9"


@linux
def test_each_limit_that_holds_is_raised_and_a_higher_one_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One may be written by root without CAP_SYS_RESOURCE, the other by root of a namespace."""
    low, high = tmp_path / "low", tmp_path / "high"
    low.write_text("9\n")
    high.write_text("2000\n")
    monkeypatch.setattr(inotify, "LIMITS", (low, high))
    inotify.ensure(1, raise_limit=False)
    assert (low.read_text(), high.read_text()) == ("9\n", "2000\n")
    inotify.ensure(1, raise_limit=True)
    assert (low.read_text(), high.read_text()) == (f"{inotify.ENOUGH}\n", "2000\n")


@pytest.mark.parametrize(("real", "raised"), [(0, False), (2, True)])
def test_a_control_plane_is_refused_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: int, raised: bool
) -> None:
    asked: list[tuple[int, bool]] = []

    def refuse(wanted: int, *, raise_limit: bool) -> None:
        asked.append((wanted, raise_limit))
        raise EngineError("none left")

    monkeypatch.setattr(inotify, "ensure", refuse)
    monkeypatch.setattr("falaj.engine.controlplane.prerequisites.lacking", list[str])
    with pytest.raises(EngineError, match="none left"):
        start(tmp_path / "plane", real=real)
    assert not (tmp_path / "plane").exists()
    assert asked == [(inotify.OF_A_PLANE + real * inotify.OF_A_MACHINE, raised)]
