"""The stacks of Azure with a real engine in the sandbox, from the first command to destroy."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.sandbox.store import Store
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

FOUNDATION, TIER = "azure-foundation", "azure-smb"
PLAN = "azure-native:security:Pricing"
#: What Azure answers where a role that was assigned has no effect yet.
LATE = {
    "authorization:RoleAssignment": "PrincipalNotFound",
    "compute:DiskEncryptionSet": "KeyVaultAccessForbidden",
    "storage:StorageAccount": "KeyVaultAuthenticationFailure",
    "containerregistry:Registry": "Failed to access KeyId",
}


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_cluster_from_preview_to_destroy(project: Project) -> None:
    live_from_preview_to_destroy(project, "azure-cluster")


@pytest.mark.thorough
@pytest.mark.timeout(1500)
def test_a_foundation_and_a_tier_beside_each_other(project: Project, tmp_path: Path) -> None:
    """The account's plans stay for who is left.

    Roles take effect late: what relies on them is tried again. Keys that exist keep their
    rotation: another one is refused before Azure would ignore it.
    """
    use(project, FOUNDATION)
    of_foundation = project.file.read_text()
    roles_take_effect_late(project)
    printed = run(project, "up", "--details")
    for answer in LATE.values():
        assert f"{answer}, which may mean that a new right isn't known" in printed
    assert nothing_changed(run(project, "up"))
    another_rotation_is_refused(project)

    use(project, TIER)
    before, said = project.file.read_text(), config(project)
    publisher = Publisher(tmp_path / "site")
    come_up_in_phases(project, publisher)
    assert config(project) == said
    use(project, FOUNDATION)
    go(project, of_foundation)
    still_has_the_plans(project, TIER)

    serve(publisher, home=project.home)
    publisher.publish("another run", model=MODEL)
    grow(project, len(made(project)))
    assert served_in(project)["version"] > 1
    go(project, before)
    store = Store(project.home / "sandbox" / "cloud.sqlite")
    try:
        assert not store.all()
    finally:
        store.close()


def roles_take_effect_late(project: Project) -> None:
    for token, answer in LATE.items():
        fault = ("fault", "add", "--on", "create", "--type", f"azure-native:{token}")
        sandbox(project, *fault, "--times", "2", "--answer", answer)
    # The registry moves to its key in the update after the one that lets it use it.
    registry = "azure-native:containerregistry:Registry"
    moving = ("fault", "add", "--on", "update", "--type", registry)
    sandbox(project, *moving, "--times", "1", "--answer", LATE["containerregistry:Registry"])


def another_rotation_is_refused(project: Project) -> None:
    before = project.file.read_text()
    keys = config(project).get("falaj:keys", {})
    change(project, keys={**keys, "rotationDays": 100})
    for command in ("preview", "up"):
        done = project.falaj(command, "--sandbox")
        assert done.returncode != 0
        assert "rotates after P365D, and P100D was given" in done.stdout
        assert "az keyvault key rotation-policy update" in done.stdout
    project.file.write_text(before)


def still_has_the_plans(project: Project, stack: str) -> None:
    """After another stack of the account is gone."""
    use(project, stack)
    assert len([each for each in made(project) if each.token == PLAN]) == 5
    assert "deleted" not in run(project, "refresh")
