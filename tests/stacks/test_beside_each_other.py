"""Two stacks of a cloud in the same account: both come up, and one goes without the other."""

from __future__ import annotations

import re

import pytest
import yaml

from falaj.sandbox.store import Store
from tests.stacks.clouds import change, made, nothing_changed, run, use
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]
_PLAN = "azure-native:security:Pricing"


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_stacks_of_azure(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever goes, the other keeps the account's plans."""
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")

    def comes_up(stack: str) -> None:
        use(project, stack)
        run(project, "up")
        assert len(made(project)) > 30

    def goes(stack: str, left: str) -> None:
        use(project, stack)
        run(project, "down")
        assert not made(project)
        use(project, left)
        assert len([each for each in made(project) if each.token == _PLAN]) == 5
        assert "deleted" not in run(project, "refresh")

    foundation, tier = "azure-foundation", "azure-smb"
    comes_up(foundation)
    comes_up(tier)
    goes(foundation, tier)
    comes_up(foundation)
    goes(tier, foundation)
    run(project, "up")
    assert nothing_changed(run(project, "up"))
    run(project, "down")
    store = Store(project.home / "sandbox" / "cloud.sqlite")
    try:
        assert not store.all()
    finally:
        store.close()


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_two_stacks_of_aws_have_one_detector(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
    use(project, "aws-foundation")
    run(project, "up")
    (detector,) = [m for m in made(project) if m.token == "aws:guardduty/detector:Detector"]
    use(project, "aws-smb")
    before = project.file.read_text()
    done = project.falaj("up", "--sandbox")
    assert done.returncode != 0
    assert re.search(r"a detector already exists for the account in me-central-1", done.stdout)
    assert f"falaj:audit.detectorId: {detector.id}" in done.stdout
    change(project, audit={"detectorId": detector.id})
    run(project, "up")
    assert nothing_changed(run(project, "up"))
    run(project, "down")
    project.file.write_text(before)
    use(project, "aws-foundation")
    assert nothing_changed(run(project, "up"))
    run(project, "down")
    assert yaml.safe_load(before)
