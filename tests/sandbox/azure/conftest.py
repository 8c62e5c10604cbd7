"""An estate in the sandbox's Azure: one plausible resource of each type the table knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.azure.estate import REGION, Estate
from tests.sandbox.azure.estate_keys import keys, locks
from tests.sandbox.azure.estate_machines import machines
from tests.sandbox.azure.estate_network import network
from tests.sandbox.azure.estate_storage import registry, storage
from tests.sandbox.azure.estate_watching import watching

PARTS: tuple[Callable[[Estate], None], ...] = (
    network,
    keys,
    storage,
    machines,
    registry,
    watching,
)


@pytest.fixture
def new_sandbox() -> Sandbox:
    """An empty Azure, set to the region of the estate."""
    return Sandbox("azure", config={"location": REGION})


@pytest.fixture(scope="session")
def whole_estate() -> Estate:
    """All of it; read only."""
    estate = Estate(Sandbox("azure", config={"location": REGION}))
    for part in (*PARTS, locks):
        part(estate)
    return estate


@pytest.fixture
def estate(new_sandbox: Sandbox) -> Estate:
    """Networks, keys and identities, for tests that add to them."""
    own = Estate(new_sandbox)
    network(own)
    keys(own)
    return own


@pytest.fixture
def large_estate(estate: Estate) -> Estate:
    """Storage and machines too."""
    storage(estate)
    machines(estate)
    return estate
