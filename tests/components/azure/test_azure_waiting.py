"""What relies on roles in Azure waits for them, and is tried again."""

from __future__ import annotations

from falaj.components.azure._waiting import ANSWERS
from tests.components.azure.conftest import SOMEBODY, Deployed, deploy
from tests.components.azure.foundation import Foundation


def made() -> Deployed:
    return deploy(lambda opts: Foundation(opts).keys(administrators=[SOMEBODY]))


def test_grants_to_services_settle_and_those_to_people_do_not() -> None:
    keys = made()
    for name in ("keys-use", "keys-encrypt", "keys-user"):
        assert list(keys.request(name).hooks.after_create), name
    assert not list(keys.request(f"keys-administrator-{SOMEBODY}").hooks.after_create)
    assert not list(keys.request("keys-group").hooks.after_create)


def test_what_relies_on_grants_is_tried_again() -> None:
    keys = made()
    tried = {each.type for each in keys.resources if list(keys.request(each.name).hooks.on_error)}
    assert tried == set(ANSWERS) & {each.type for each in keys.resources}
    assert "azure-native:compute:DiskEncryptionSet" in tried
