"""Sites and servers for the tests of the inference server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.inference import models
from tests.workloads.inference.raw_http import Raw
from tests.workloads.inference.serving import Server, Site, started


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "site")


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Start servers that are ended with the test."""
    servers: list[Server] = []

    def run(site: Site, **options: Any) -> Server:
        servers.append(Server(site, **options))
        return servers[-1]

    yield run
    for server in servers:
        server.kill()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of the small network for all tests that only send requests."""
    site = Site(tmp_path_factory.mktemp("running") / "site")
    site.write(
        limits={
            "max_body_bytes": 256 * 1024,
            "max_rows": 64,
            "header_timeout_seconds": 2,
            "idle_timeout_seconds": 30,
        }
    )
    with started(site, site.publish(models.mlp())) as server:
        yield server


@pytest.fixture
def token(running: Server) -> str:
    return running.site.token("predict")


@pytest.fixture
def raw(running: Server) -> Iterator[Raw]:
    """A connection on which bytes are sent as they are."""
    connection = Raw(running)
    yield connection
    connection.close()
