"""`falaj draw`: files that can't be used, what it prints, what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command.__main__ import main
from tests.stacks.conftest import Project
from tests.stacks.states import resource, states


def exported(folder: Path, resources: Any) -> Path:
    path = folder / "export.json"
    path.write_text(json.dumps({"version": 3, "deployment": {"resources": resources}}))
    return path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "can't be read"),
        ("{", "can't be read"),
        ("[]", "no 'deployment'"),
        ("{}", "pulumi stack export"),
        ('{"steps": 5}', "pulumi preview --json"),
        ('{"deployment": {"resources": [5]}}', "can't be read"),
        ("\ud800", "can't be read"),
        ("[" * 100_000, "can't be read"),
    ],
)
def test_a_file_that_isnt_one_is_refused(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(content.encode("utf-8", "surrogatepass"))
    assert main(["draw", "--state", str(path)]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert str(path) in printed.err
    assert not printed.out


def test_a_file_that_isnt_there_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["draw", "--state", str(tmp_path / "none.json")]) == 2
    assert "none.json can't be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--now", "--state", "x.json"], "exclude each other"),
        (["--state", "x.json", "--width", "39"], "--width"),
        (["--stack", "no-such-stack"], "no-such-stack"),
    ],
)
def test_wrong_options_are_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["draw", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_what_is_printed_is_the_drawing_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, list(states("aws-smb")))
    svg, data = tmp_path / "new" / "a.svg", tmp_path / "a.json"
    files = ["--svg", str(svg), "--json", str(data)]
    assert main(["draw", "--state", str(path), "--width", "100", *files]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("Stack aws-smb\n")
    assert str(svg) not in printed.out
    assert str(svg) in printed.err
    assert max(map(len, printed.out.splitlines())) == 100
    assert svg.read_text(encoding="utf-8").startswith("<?xml")
    assert json.loads(data.read_text(encoding="utf-8"))["stack"] == "aws-smb"
    assert not list(tmp_path.rglob("*.part"))


def test_without_a_terminal_it_has_eighty_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, [resource("aws:s3/bucket:Bucket")])
    assert main(["draw", "--state", str(path)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) == 80


def test_a_file_that_cant_be_written_doesnt_hide_the_drawing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = exported(tmp_path, [resource("aws:s3/bucket:Bucket")])
    (tmp_path / "file").write_text("")
    assert main(["draw", "--state", str(path), "--svg", str(tmp_path / "file" / "a.svg")]) == 2
    printed = capsys.readouterr()
    assert "store it" in printed.out
    assert "can't be written" in printed.err


@pytest.mark.slow
@pytest.mark.engine
def test_the_local_stack_needs_no_sandbox(project: Project) -> None:
    project.configure()
    refused = project.falaj("draw", "--sandbox")
    assert refused.returncode == 2
    assert "platform local" in refused.stdout
    done = project.falaj("draw")
    assert done.returncode == 0, done.stdout
    assert "callers on this machine" in done.stdout
