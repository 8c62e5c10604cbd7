"""An samples in the sandbox's Azure: one plausible resource of each type the table knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.azure.samples import REGION, Samples
from tests.sandbox.azure.samples_keys import keys, locks
from tests.sandbox.azure.samples_machines import machines
from tests.sandbox.azure.samples_network import network
from tests.sandbox.azure.samples_storage import registry, storage
from tests.sandbox.azure.samples_watching import watching

PARTS: tuple[Callable[[Samples], None], ...] = (
    network,
    keys,
    storage,
    machines,
    registry,
    watching,
)


@pytest.fixture
def new_sandbox() -> Sandbox:
    """An empty Azure, set to the region of the samples."""
    return Sandbox("azure", config={"location": REGION})


@pytest.fixture(scope="session")
def all_samples() -> Samples:
    """All of it; read only."""
    samples = Samples(Sandbox("azure", config={"location": REGION}))
    for part in (*PARTS, locks):
        part(samples)
    return samples


@pytest.fixture
def samples(new_sandbox: Sandbox) -> Samples:
    """Networks, keys and identities, for tests that add to them."""
    own = Samples(new_sandbox)
    network(own)
    keys(own)
    return own


@pytest.fixture
def more_samples(samples: Samples) -> Samples:
    """Storage and machines too."""
    storage(samples)
    machines(samples)
    return samples
