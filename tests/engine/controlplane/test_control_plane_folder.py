"""What is refused before anything is built or started."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from falaj.engine.commands import run
from falaj.engine.controlplane import ControlPlane, binaries, start, stop
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.record import Record, Settings
from falaj.engine.errors import EngineError
from falaj.stacks.command.cluster import cluster

#: One command as a person gives it; returns its exit status.
main = functools.partial(run, cluster, "falaj cluster")


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(EngineError, match="holds other things; name an empty folder"):
        start(tmp_path)
    assert not stop(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_wrong_nodes_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "cluster"
    assert main(["up", "--nodes", "h300=1", "--folder", str(folder)]) == 2
    assert "no machine 'h300' is known" in capsys.readouterr().err
    assert not folder.exists()


def test_an_unknown_controller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no volcano can be run .* known are .*kueue, jobset"):
        start(tmp_path / "cluster", controllers=("volcano",))


def test_where_none_runs_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"no control plane runs in .*`falaj cluster up`"):
        ControlPlane(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", '{"pid": 1}', "\x00"])
def test_a_damaged_record_is_named(tmp_path: Path, content: str) -> None:
    Record.path(Files(tmp_path)).write_text(content)
    with pytest.raises(EngineError, match=r"state\.json .*; run `falaj cluster down`"):
        Record.read(Files(tmp_path))


def test_another_process_of_the_same_number_is_no_host(tmp_path: Path) -> None:
    Record(1, "ready").write(Files(tmp_path))
    found = Record.read(Files(tmp_path))
    assert found is not None
    assert not found.is_running


def test_settings_survive_the_way_to_the_host(tmp_path: Path) -> None:
    settings = Settings(
        {"kubernetes": "/bin"}, True, ("kueue",), controller_settings={"kueue": {}}
    )
    settings.write(Files(tmp_path))
    read = Settings.read(Files(tmp_path))
    assert json.dumps(vars(read), default=list) == json.dumps(vars(settings), default=list)


def test_every_module_is_pinned_with_its_checksums() -> None:
    for built in binaries.built().values():
        module = built.module.folder
        sums = (module / "go.sum").read_text(encoding="utf-8")
        text = (module / "go.mod").read_text(encoding="utf-8")
        assert ("h1:" in sums) is ("require" in text)
        for package in built.commands.values():
            assert package in text
        # A program of our own alone has no requirements, and its version is its own.
        assert built.name == "crds" or "v" + built.version in text or "require" not in text


def test_a_schema_loses_its_prose_and_nothing_else() -> None:
    schema = {
        "description": "prose",
        "properties": {"description": {"type": "string", "description": "prose"}},
        "default": {"description": "kept"},
        "anyOf": [{"description": "prose", "type": "integer"}],
    }
    assert binaries.without_descriptions(schema) == {
        "properties": {"description": {"type": "string"}},
        "default": {"description": "kept"},
        "anyOf": [{"type": "integer"}],
    }
