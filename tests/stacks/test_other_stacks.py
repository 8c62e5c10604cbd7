"""What a backend holds beside a stack, and what goes with the last one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from falaj.stacks.command.lifecycle import remove_leftovers
from tests.stacks.bare_stacks import bare_stack, use_own_backend


@pytest.mark.slow
def test_the_backend_stays_while_another_project_has_a_stack_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = use_own_backend(tmp_path, monkeypatch)
    first, second = (bare_stack(tmp_path / each, "dev", each) for each in ("shop", "shop-2"))
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
    use_own_backend(tmp_path, monkeypatch)
    pulumi = bare_stack(tmp_path, "dev")
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
