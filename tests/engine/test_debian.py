"""Programs of Debian's packages: found, unpacked once, or said what is missing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from falaj.engine import debian
from falaj.engine.errors import EngineError

#: As apt answers, and as it fetches: with the package's name at the end.
_APT = """#!/bin/sh
echo "$@" >> "$LOG"
case "$*" in
  *--print-uris*) {lists}; echo "'http://a.example/p.deb' prometheus_2.0_amd64.deb 9 SHA256:0";;
  *download*) {fetch};;
esac
"""
_UNPACK = """#!/bin/sh
mkdir -p "$3/usr/bin" && echo '#!/bin/sh' > "$3/usr/bin/promtool" && chmod +x "$3/usr/bin/promtool"
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with nothing but the shell's own tools on its path, and an empty cache."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "mkdir", "chmod", "touch", "cat"):
        (folder / name).symlink_to(f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("LOG", str(tmp_path / "log"))
    return folder


def apt(machine: Path, lists: str = "true", fetch: str = "touch prometheus_2.0_amd64.deb") -> None:
    for name, text in {
        "apt-get": _APT.format(lists=lists, fetch=fetch),
        "dpkg-deb": _UNPACK,
    }.items():
        (machine / name).write_text(text)
        (machine / name).chmod(0o755)


def asked(tmp_path: Path) -> list[str]:
    return (tmp_path / "log").read_text().splitlines()


def test_the_one_on_the_path_is_taken(machine: Path) -> None:
    path = machine / "promtool"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    assert debian.program("promtool") == path


def test_elsewhere_it_is_said_what_to_install(
    machine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        EngineError, match="prometheus: this machine has no packages of Debian; install"
    ):
        debian.program("promtool")
    assert debian.main(["ensure"]) == 1
    assert "install what is missing" in capsys.readouterr().err
    assert debian.main([]) == 2


def test_it_is_fetched_and_unpacked_once(machine: Path, tmp_path: Path) -> None:
    apt(machine)
    found = debian.program("promtool")
    assert os.access(found, os.X_OK)
    assert found.is_relative_to(tmp_path / "cache/debian/prometheus_2.0_amd64")
    assert debian.program("promtool") == found
    [fetched] = [each for each in asked(tmp_path) if "print-uris" not in each]
    assert fetched.endswith("User=root download prometheus")


def test_what_was_cut_off_is_not_taken_for_whole(machine: Path, tmp_path: Path) -> None:
    apt(machine, fetch="exit 100")
    with pytest.raises(EngineError, match="download prometheus failed"):
        debian.program("promtool")
    assert not [each for each in (tmp_path / "cache/debian").iterdir() if each.is_dir()]
    apt(machine)
    assert debian.program("promtool").exists()


@pytest.mark.parametrize(("user", "asks"), [(0, True), (1000, False)])
def test_lists_that_a_new_machine_lacks_are_got_by_root(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, user: int, *, asks: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    apt(machine, lists='case "$(cat "$LOG")" in *update*) true;; *) exit 100;; esac')
    if asks:
        assert debian.program("promtool").exists()
    else:
        with pytest.raises(EngineError, match="print-uris prometheus failed"):
            debian.program("promtool")
    assert ("update" in asked(tmp_path)) is asks
