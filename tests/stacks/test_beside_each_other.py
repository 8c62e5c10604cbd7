"""Two stacks of a cloud in the same account: both come up, and one goes without the other."""

from __future__ import annotations

import re

import pytest
import yaml

from falaj.sandbox.store import Store
from tests.stacks.clouds import change, counts, made, nothing_changed, run, use
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]
_PLAN = "azure-native:security:Pricing"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first_goes", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_two_stacks_of_azure(
    project: Project, monkeypatch: pytest.MonkeyPatch, first_goes: bool
) -> None:
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
    pair = ["azure-foundation", "azure-smb"]
    for stack in pair:
        use(project, stack)
        assert counts(run(project, "up"))["created"] > 30
    goes, stays = pair if first_goes else reversed(pair)
    use(project, goes)
    run(project, "down")
    assert not made(project)
    use(project, stays)
    plans = [each for each in made(project) if each.token == _PLAN]
    assert len(plans) == 5
    printed = run(project, "refresh")
    assert "deleted" not in printed
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
