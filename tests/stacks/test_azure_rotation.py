"""Keys that exist keep their rotation: another one is refused before Azure would ignore it."""

from __future__ import annotations

import pytest

from tests.stacks.clouds import change, config, nothing_changed, run, use
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]


@pytest.mark.timeout(600)
def test_another_rotation_is_refused_with_what_to_do(project: Project) -> None:
    use(project, "azure-foundation")
    run(project, "up")
    keys = config(project).get("falaj:keys", {})
    change(project, keys={**keys, "rotationDays": 100})
    for command in ("preview", "up"):
        done = project.falaj(command, "--sandbox")
        assert done.returncode != 0
        assert "rotates after P365D, and P100D was given" in done.stdout
        assert "az keyvault key rotation-policy update" in done.stdout
    change(project, keys=keys)
    assert nothing_changed(run(project, "up"))
    run(project, "down")
