from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from falaj.engine.backend import ensure_backend
from falaj.engine.errors import EngineError
from falaj.engine.files import cache_home, data_home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_an_empty_passphrase_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "passphrase").touch()
    with pytest.raises(EngineError, match="should hold the passphrase"):
        ensure_backend({"FALAJ_HOME": str(tmp_path)})


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="preparing the backend"):
        ensure_backend({"FALAJ_HOME": str(tmp_path / "file" / "data")})


@pytest.mark.parametrize("name", ["PULUMI_BACKEND_URL", "PULUMI_ACCESS_TOKEN"])
def test_a_persons_own_backend_is_left_alone(name: str, tmp_path: Path) -> None:
    home = tmp_path / "data"
    assert ensure_backend({"FALAJ_HOME": str(home), name: "theirs"}) == {}
    assert not home.exists()


@pytest.mark.parametrize("name", ["PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"])
def test_a_persons_own_passphrase_is_left_alone(name: str, tmp_path: Path) -> None:
    found = ensure_backend({"FALAJ_HOME": str(tmp_path), name: "theirs"})
    assert list(found) == ["PULUMI_BACKEND_URL"]
    assert not (tmp_path / "passphrase").exists()


def test_backend_and_passphrase_are_private_and_stay(tmp_path: Path) -> None:
    home = tmp_path / "a" / "data"
    first = ensure_backend({"FALAJ_HOME": str(home)})
    passphrase = home / "passphrase"
    text = passphrase.read_text()
    assert first == {
        "PULUMI_BACKEND_URL": f"file://{home}/backend",
        "PULUMI_CONFIG_PASSPHRASE_FILE": str(passphrase),
    }
    assert (mode(home), mode(home / "backend"), mode(passphrase)) == (0o700, 0o700, 0o600)
    assert len(text.strip()) >= 43
    assert text.strip() not in str(first)
    assert ensure_backend({"FALAJ_HOME": str(home)}) == first
    assert passphrase.read_text() == text
    assert sorted(path.name for path in home.iterdir()) == ["backend", "passphrase"]


def test_a_passphrase_that_others_can_read_is_closed(tmp_path: Path) -> None:
    ensure_backend({"FALAJ_HOME": str(tmp_path)})
    (tmp_path / "passphrase").chmod(0o644)
    ensure_backend({"FALAJ_HOME": str(tmp_path)})
    assert mode(tmp_path / "passphrase") == 0o600


def _passphrase(home: str) -> str:
    return Path(ensure_backend({"FALAJ_HOME": home})["PULUMI_CONFIG_PASSPHRASE_FILE"]).read_text()


def test_runs_at_once_agree_on_one_passphrase(tmp_path: Path) -> None:
    # Not forked: other threads of the tests' process may hold locks, which nobody would release.
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(_passphrase, [str(tmp_path / "data")] * 16)
    assert len(set(found)) == 1


def test_the_folders_follow_the_usual_variables(tmp_path: Path) -> None:
    home = {"FALAJ_HOME": str(tmp_path / "own"), "XDG_DATA_HOME": "/xdg"}
    assert data_home(home) == tmp_path / "own"
    assert data_home({"XDG_DATA_HOME": "/xdg"}) == Path("/xdg/falaj")
    # A relative path there is to be ignored, says the specification.
    assert data_home({"XDG_DATA_HOME": "xdg"}) == Path.home() / ".local/share/falaj"
    assert cache_home({"XDG_CACHE_HOME": "/xdg"}) == Path("/xdg/falaj")
    assert cache_home({"HOME": os.environ["HOME"]}) == Path.home() / ".cache/falaj"
