"""What a backend holds beside a stack, and what goes with the last one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from falaj.engine.backend import OWN_BACKEND, OWN_PASSPHRASE
from falaj.stacks.command.lifecycle import remove_leftovers
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.pulumi import Pulumi


@pytest.mark.slow
def test_the_backend_stays_while_another_project_has_a_stack_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*OWN_BACKEND, *OWN_PASSPHRASE):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    monkeypatch.setenv("FALAJ_HOME", str(home))
    made: list[Pulumi] = []
    for project in ("shop", "shop-2"):
        folder = tmp_path / project
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
        (folder / "Pulumi.dev.yaml").write_text("config:\n  falaj:platform: local\n")
        made.append(Pulumi(StackFile("dev", Project.find(folder)), plugins=False))
    first, second = made
    first.ensure_stack()
    assert first.other_stacks() == []
    assert first.exists()
    assert not second.exists()
    second.ensure_stack()
    for each, other in ((first, "shop-2"), (second, "shop")):
        assert [name.split("/")[-2:] for name in each.other_stacks()] == [[other, "dev"]]

    first.capture(["stack", "rm", "dev", "--yes", "--preserve-config"])
    remove_leftovers(first, first.stack, retain=False)
    assert second.exists()
    assert second.resources() == []

    second.capture(["stack", "rm", "dev", "--yes", "--preserve-config"])
    remove_leftovers(second, second.stack, retain=False)
    assert not (home / "backend").exists()


@pytest.mark.slow
def test_a_program_that_no_state_knows_goes_with_its_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Someone removed the backend by hand: its stack is empty, and what it started still runs."""
    for name in (*OWN_BACKEND, *OWN_PASSPHRASE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config:\n  falaj:platform: local\n")
    pulumi = Pulumi(StackFile("dev", Project.find(tmp_path)), plugins=False)
    site = pulumi.stack.site
    (site / "keyring").mkdir(parents=True)
    sleep = "import time; time.sleep(600)"
    lost, stranger = (
        subprocess.Popen([sys.executable, "-c", sleep, "workloads.inference", f"{folder}/run"])
        for folder in (site, f"{site}-2")
    )
    try:
        remove_leftovers(pulumi, pulumi.stack, retain=True)
        assert lost.wait(30) != 0
        assert stranger.poll() is None
    finally:
        for each in (lost, stranger):
            each.kill()
            each.wait()
    told = capsys.readouterr().out
    assert f"processes of {site} that the stack's state didn't know, ended: 1" in told
    assert (site / "keyring").is_dir()
