"""``falaj config``: keys of a stack's file, changed in it with its comments, or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from falaj.stacks.command import __main__ as command
from falaj.stacks.errors import StackError
from falaj.stacks.settings import edit
from tests.stacks.mistakes import BASES


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a stack on a machine, one in a cloud, and a template."""
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    (tmp_path / "stacks" / "templates").mkdir(parents=True)
    (tmp_path / "stacks" / "templates" / "local.yaml").write_text(BASES["local"])
    (tmp_path / "stacks" / "Pulumi.dev.yaml").write_text(BASES["local"])
    (tmp_path / "stacks" / "Pulumi.smb.yaml").write_text(BASES["smb"])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = command.main(["config", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_a_changed_line_is_printed_with_its_place_and_keeps_its_comment(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = called(
        capsys, "set", "falaj:service.port", "9000", "training.seed", "7", "-s", "dev"
    )
    assert status == 0
    assert out == (
        "stacks/Pulumi.dev.yaml:7:     port: 9000   # its own\n"
        "stacks/Pulumi.dev.yaml:9:   falaj:training: {epochs: 3, width: 16, seed: 7}\n"
    )
    expected = BASES["local"].replace("8443", "9000").replace("16}", "16, seed: 7}")
    assert (folder / "stacks" / "Pulumi.dev.yaml").read_text() == expected
    status, out, _ = called(capsys, "set", "service.port", "9000", "-s", "dev")
    assert (status, out) == (0, "stacks/Pulumi.dev.yaml says so already; nothing was changed\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["service.port", "80"],
            "falaj:service.port: given 80; allowed: a whole number",
        ),
        (["service.prt", "9000"], "falaj:service.prt: unknown key; did you mean port?"),
        (["falja:retain", "true"], "unknown namespace 'falja'; allowed: falaj, "),
        (["retain", "perhaps"], "falaj:retain: given 'perhaps'; allowed: true or false"),
        (["service", "5"], "falaj:service: given 5; allowed: a section of keys"),
        (["keepVersions", "4", "retain", "maybe"], "falaj:retain: given 'maybe'"),
        (["keepVersions"], "keepVersions: given without a value; allowed: KEY VALUE"),
        (["retain", "true", "retain", "false"], "retain: given twice; give each key once"),
        (["", "5"], "'' is no key; allowed: falaj:KEY"),
        ([".port", "5"], "'.port' is no key; allowed: falaj:KEY"),
        (["keepVersions.x", "5"], "keepVersions.x: 5 has nothing below it"),
        (["dataset", ""], "falaj:dataset: given ''; allowed: "),
    ],
)
def test_what_is_refused_leaves_the_file_as_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    status, out, err = called(capsys, "set", "-s", "dev", *words)
    assert (status, out) == (2, "")
    assert said in err
    assert (folder / "stacks" / "Pulumi.dev.yaml").read_text() == BASES["local"]


def test_what_a_value_needs_beside_it_is_said(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    path.write_text(BASES["table"])
    words = ("watch.steps", "[tell, retrain]", "watch.data", "data")
    status, _, err = called(capsys, "set", "-s", "dev", *words)
    assert status == 2
    assert "falaj:model: missing; " in err
    assert err.endswith(
        "  with it in the file, this would do:\n"
        "      falaj:model: customers\n"
        "  stacks/Pulumi.dev.yaml was not changed\n"
    )
    assert path.read_text() == BASES["table"]
    assert called(capsys, "set", "-s", "dev", *words, "model", "customers")[0] == 0


def test_a_section_goes_with_keys_that_have_its_name_before_theirs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    path.write_text(BASES["local"])
    pairs = ("service.experiment.key", "x-customer", "service.experiment.share", "20")
    assert called(capsys, "set", "-s", "dev", *pairs)[0] == 0
    flat = "  falaj:service.shadow.percent: 10\n"
    path.write_text(path.read_text() + flat)
    assert called(capsys, "rm", "service.exp", "-s", "dev")[0] == 2
    assert called(capsys, "rm", "service.experiment", "-s", "dev")[0] == 0
    assert "experiment" not in path.read_text()
    assert path.read_text().endswith(flat)
    assert called(capsys, "rm", "service.shadow", "-s", "dev")[0] == 0
    assert flat not in path.read_text()


def test_keys_are_removed_together_or_not_at_all(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    status, _, err = called(capsys, "rm", "training", "nothing", "-s", "dev")
    assert status == 2
    assert "stacks/Pulumi.dev.yaml doesn't say nothing; nothing was removed" in err
    status, _, err = called(capsys, "rm", "falaj:platform", "-s", "dev")
    assert status == 2
    assert "falaj:platform: given nothing" in err
    assert path.read_text() == BASES["local"]
    status, out, _ = called(capsys, "rm", "training", "service.workers", "-s", "dev")
    assert status == 0
    assert out == (
        "stacks/Pulumi.dev.yaml:8: removed:     workers: 2\n"
        "stacks/Pulumi.dev.yaml:9: removed:   falaj:training: {epochs: 3, width: 16}\n"
    )
    gone = ("    workers: 2\n", "  falaj:training: {epochs: 3, width: 16}\n")
    expected = BASES["local"].replace(gone[0], "").replace(gone[1], "")
    assert path.read_text() == expected


@pytest.mark.parametrize(
    "arguments", [["-s", "smb"], ["get", "-s", "smb"], ["--stack", "smb", "get"]]
)
def test_all_keys_are_shown(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    (folder / "Pulumi.yaml").write_text(
        "name: falaj\nmain: stacks\nstackConfigDir: stacks\nconfig:\n"
        "  falaj:environment: {value: test}\n  other:key: {value: 1}\n"
    )
    status, out, _ = called(capsys, *arguments)
    assert status == 0
    rows = dict(line.split(None, 1) for line in out.splitlines())
    assert rows["falaj:inference.minInstances"] == "1"
    assert rows["falaj:budget.emails"] == "[it@example.ae]"
    assert rows["falaj:environment"] == "test"
    assert all(key.startswith("falaj:") for key in rows)


def test_values_are_printed_so_that_programs_can_read_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del folder
    assert called(capsys, "get", "falaj:owner", "-s", "smb")[1] == "it@example.ae\n"
    assert called(capsys, "get", "budget", "-s", "smb")[1] == (
        "{monthlyUsd: 500, emails: [it@example.ae]}\n"
    )
    assert called(capsys, "get", "budget.emails[0]", "-s", "smb")[1] == "it@example.ae\n"
    status, out, err = called(capsys, "get", "budget.nothing", "-s", "smb")
    assert (status, out) == (2, "")
    assert "stacks/Pulumi.smb.yaml doesn't say budget.nothing" in err


def test_an_encrypted_value_is_not_shown_nor_set_but_may_go(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    text = BASES["local"].replace("keepVersions: 5", "model: {secure: v1:abcdef}")
    path.write_text(text)
    for arguments in (["get", "model"], ["set", "model", "churn"]):
        status, out, err = called(capsys, *arguments, "-s", "dev")
        assert status == 2
        assert "model is encrypted; settings are never secrets" in err
        assert "falaj config rm model" in err
        assert "abcdef" not in out + err
    assert path.read_text() == text
    status, out, _ = called(capsys, "-s", "dev")
    assert status == 0
    assert "an encrypted value" in out
    assert "abcdef" not in out
    assert called(capsys, "rm", "model", "-s", "dev")[0] == 0
    assert path.read_text() == text.replace("  falaj:model: {secure: v1:abcdef}\n", "")


def test_what_was_wrong_before_does_not_forbid_a_change_and_is_told(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    path.write_text(BASES["local"].replace("workers: 2", "worker: 2"))
    status, out, _ = called(capsys, "set", "keepVersions", "7", "-s", "dev")
    assert status == 0
    assert out.startswith("stacks/Pulumi.dev.yaml:10:   falaj:keepVersions: 7\n")
    assert "stacks/Pulumi.dev.yaml:8: falaj:service.worker: unknown key" in out


def test_what_the_project_says_is_said_anew_by_the_stack(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    project = folder / "Pulumi.yaml"
    project.write_text(
        "name: falaj\nmain: stacks\nstackConfigDir: stacks\nconfig:\n"
        "  falaj:optimization: {value: {maxAccuracyDrop: 0.5}}\n"
    )
    before = project.read_text()
    status, out, _ = called(capsys, "set", "optimization.maxAccuracyDrop", "0.7", "-s", "dev")
    assert status == 0
    assert "maxAccuracyDrop: 0.7" in out
    assert project.read_text() == before
    assert called(capsys, "get", "optimization.maxAccuracyDrop", "-s", "dev")[1] == "0.7\n"
    called(capsys, "rm", "optimization", "-s", "dev")
    status, _, err = called(capsys, "rm", "optimization", "-s", "dev")
    assert status == 2
    assert "is said by Pulumi.yaml, not by stacks/Pulumi.dev.yaml; edit that file" in err


def test_a_stack_without_a_file_is_made_from_its_template_or_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = called(capsys, "get", "service.port", "-s", "local")
    assert status == 2
    assert "there is no stack file stacks/Pulumi.local.yaml" in err
    assert called(capsys, "set", "service.port", "9001", "-s", "local")[0] == 0
    assert "port: 9001   # its own" in (folder / "stacks" / "Pulumi.local.yaml").read_text()
    status, _, err = called(capsys, "set", "service.port", "9001", "-s", "nobodys")
    assert status == 2
    assert "there is no stack 'nobodys'" in err


def test_the_keys_of_other_namespaces_are_whole_names(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = called(capsys, "set", "pulumi:tags.a", "no", "-s", "dev")
    assert status == 0
    assert out == 'stacks/Pulumi.dev.yaml:11:   pulumi:tags.a: "no"\n'
    assert 'pulumi:tags.a: "no"' in (folder / "stacks" / "Pulumi.dev.yaml").read_text()


def test_rights_and_links_of_the_file_stay(folder: Path) -> None:
    real = folder / "elsewhere.yaml"
    path = folder / "stacks" / "Pulumi.dev.yaml"
    path.rename(real)
    path.symlink_to(real)
    real.chmod(0o640)
    edit.set_values(path, folder, {"keepVersions": "9"})
    assert path.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert "keepVersions: 9" in real.read_text()


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_folder_that_can_t_be_written_is_told(folder: Path) -> None:
    (folder / "stacks").chmod(0o555)
    try:
        with pytest.raises(StackError, match=r"Pulumi\.dev\.yaml can't be written: Permission"):
            edit.set_values(folder / "stacks" / "Pulumi.dev.yaml", folder, {"keepVersions": "9"})
    finally:
        (folder / "stacks").chmod(0o755)


def test_changes_at_the_same_time_all_arrive(folder: Path) -> None:
    path = folder / "stacks" / "Pulumi.dev.yaml"
    changes = {"keepVersions": "9", "service.port": "9002", "training.epochs": "8"}
    workers = [
        threading.Thread(target=edit.set_values, args=(path, folder, {key: value}))
        for key, value in changes.items()
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    text = path.read_text()
    assert "keepVersions: 9" in text
    assert "port: 9002   # its own" in text
    assert "epochs: 8" in text
