"""Stacks of clouds with a real engine in the sandbox: refusals, placement, templates."""

from __future__ import annotations

import pytest
import yaml

from tests.stacks.clouds import change, config, run, use
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]


def test_a_real_deployment_of_a_stack_for_the_sandbox_is_refused(project: Project) -> None:
    use(project, "aws-foundation")
    done = project.falaj("preview")
    assert done.returncode == 2
    assert "falaj:acknowledgeDegraded.for: given 'sandbox'" in done.stdout


def test_a_degraded_region_is_refused_unless_acknowledged(project: Project) -> None:
    use(project, "aws-foundation")
    document = yaml.safe_load(project.file.read_text())
    for accepted in (None, {"region": "me-central-1", "asOf": "2026-03-01", "for": "sandbox"}):
        document["config"]["falaj:acknowledgeDegraded"] = accepted
        if accepted is None:
            del document["config"]["falaj:acknowledgeDegraded"]
        project.file.write_text(yaml.safe_dump(document))
        done = project.falaj("preview", "--sandbox")
        assert done.returncode == 2
        assert "2026-04-30" in done.stdout


def test_a_gpu_that_is_not_sold_is_refused_with_what_is(project: Project) -> None:
    use(project, "aws-cluster")
    before = project.file.read_text()
    pools = config(project)["falaj:gpuPools"]
    pools["a100"] = {"gpu": "A100", "count": 8}
    change(project, gpuPools=pools)
    done = project.falaj("preview", "--sandbox")
    project.file.write_text(before)
    assert done.returncode == 2
    assert "A100" in done.stdout
    assert "p5en.48xlarge" in done.stdout


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_first_healthy_place_is_taken_and_the_reason_said(project: Project) -> None:
    use(project, "aws-smb")
    document = yaml.safe_load(project.file.read_text())
    for key in ("platform", "region", "acknowledgeDegraded"):
        del document["config"][f"falaj:{key}"]
    document["config"]["falaj:placement"] = ["aws/me-central-1", "azure/uaenorth"]
    inference = document["config"]["falaj:inference"]
    inference["mode"] = "serverless"
    del inference["int8"]
    project.file.write_text(yaml.safe_dump(document))
    printed = run(project, "preview", "--details")
    assert "aws/me-central-1 passed over" in printed
    assert "azure/uaenorth taken" in printed
    assert "azure-native:" in printed


def test_wrong_answers_to_a_template_are_refused_by_the_program(project: Project) -> None:
    folder = project.root.parent / "wrong"
    folder.mkdir()
    source = project.root / "stacks" / "templates" / "smb-tier"
    new = ["pulumi", "new", str(source), "--yes", "--name", "own-wrong", "--stack", "dev"]
    answers = ["--config", "falaj:platform=gcp"]
    assert project.run_in(folder, [*new, *answers]).returncode == 0
    done = project.run_in(folder, ["pulumi", "preview", "-s", "dev", "--non-interactive"])
    assert done.returncode != 0
    assert "falaj:platform: given 'gcp'; allowed: local, aws, azure" in done.stdout
    assert "Traceback" not in done.stdout
