"""The stacks of AWS with a real engine in the sandbox, from the first command to destroy."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.clouds import (
    change,
    config,
    go,
    grow,
    live_from_preview_to_destroy,
    made,
    nothing_changed,
    run,
    sandbox,
    use,
)
from tests.stacks.conftest import Project
from tests.stacks.models.published import Publisher
from tests.stacks.tiers import MODEL, come_up_in_phases, serve, served_in

pytestmark = [
    pytest.mark.slow, pytest.mark.engine, pytest.mark.usefixtures("state_at_each_end"),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_cluster_from_preview_to_destroy(project: Project) -> None:
    live_from_preview_to_destroy(project, "aws-cluster")


@pytest.mark.thorough
@pytest.mark.timeout(1500)
def test_a_foundation_and_a_tier_beside_each_other(project: Project, tmp_path: Path) -> None:
    """A create that fails is done by the next run; the account has one detector, and the tier goes
    without the foundation."""
    foundation, tier = "aws-foundation", "aws-smb"
    use(project, foundation)
    of_foundation = project.file.read_text()
    fault = ("fault", "add", "--on", "create", "--type", "aws:ec2/subnet:Subnet", "--nth", "2")
    sandbox(project, *fault)
    done = project.falaj("up", "--sandbox")
    assert done.returncode != 0
    assert "make up STACK=aws-foundation SANDBOX=1" in done.stdout
    half = len(made(project))
    assert half > 0
    # All that was made is told of: the engine's own count has components and providers, too.
    told_of = re.search(r"; (\d+) created before that, which is kept", done.stdout)
    assert told_of
    assert int(told_of[1]) >= half
    run(project, "up")
    assert len(made(project)) > half
    assert foretold(project, tmp_path / "another") == told(project)
    (detector,) = [m for m in made(project) if m.token == "aws:guardduty/detector:Detector"]

    use(project, tier)
    before = project.file.read_text()
    done = project.falaj("up", "--sandbox")
    assert done.returncode != 0
    assert re.search(r"a detector already exists for the account in me-central-1", done.stdout)
    assert f"falaj:audit.detectorId: {detector.id}" in done.stdout
    change(project, audit={"detectorId": detector.id})
    said = config(project)
    publisher = Publisher(tmp_path / "site")
    come_up_in_phases(project, publisher)
    assert config(project) == said

    serve(publisher, home=project.home)
    publisher.publish("another run", model=MODEL)
    grow(project, len(made(project)))
    assert served_in(project)["version"] > 1
    go(project, before)
    use(project, foundation)
    assert nothing_changed(run(project, "preview"))
    go(project, of_foundation)


#: What a check does before it judges a stack that stands on another one.
FORETELL = """
import sys
from pathlib import Path
from falaj.stacks.checking.ground import make_predicted
from falaj.stacks.checking.preview import opened
from falaj.stacks.checking.subject import subject_of
from falaj.stacks.command.project import Project, StackFile
ground = subject_of(StackFile(sys.argv[1], Project.find(Path.cwd())))
pulumi, _ = opened(ground, sandbox=True, copied=True)
make_predicted(pulumi, ground.settings)
"""


def foretold(project: Project, home: Path) -> tuple[Any, set[str]]:
    """What others would find of a stack, in the sandbox of a check of theirs."""
    home.mkdir()
    checked = replace(project, home=home)
    done = checked.run_in(project.root, [sys.executable, "-c", FORETELL, project.stack])
    assert done.returncode == 0, done.stdout
    return told(checked)


def told(project: Project) -> tuple[Any, set[str]]:
    """A stack's outputs, and the ids of what it made."""
    folder = project.home / "sandbox" / "projects" / "falaj"
    shown = ["pulumi", "stack", "output", "--json", "-s", project.stack]
    printed = project.in_sandbox(folder, shown).stdout
    return json.loads(printed[printed.index("{") :]), {each.id for each in made(project)}
