"""Roles of Azure that take effect late: what relies on them is tried again, and all comes up."""

from __future__ import annotations

import pytest

from tests.stacks.clouds import nothing_changed, run, sandbox, use
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]

LATE = {
    "authorization:RoleAssignment": "PrincipalNotFound",
    "compute:DiskEncryptionSet": "KeyVaultAccessForbidden",
    "storage:StorageAccount": "KeyVaultAuthenticationFailure",
    "containerregistry:Registry": "Failed to access KeyId",
}


@pytest.mark.timeout(600)
def test_up_gets_through(project: Project) -> None:
    use(project, "azure-foundation")
    for token, answer in LATE.items():
        fault = ("fault", "add", "--on", "create", "--type", f"azure-native:{token}")
        sandbox(project, *fault, "--times", "2", "--answer", answer)
    # The registry moves to its key in the update after the one that lets it use it.
    moving = (
        "fault",
        "add",
        "--on",
        "update",
        "--type",
        "azure-native:containerregistry:Registry",
    )
    sandbox(project, *moving, "--times", "1", "--answer", "Failed to access KeyId")
    printed = run(project, "up", "--details")
    for answer in LATE.values():
        assert f"{answer}, which may mean that a new right isn't known" in printed
    assert nothing_changed(run(project, "up"))
    run(project, "down")
