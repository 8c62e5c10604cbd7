"""A site with packages, and runs of the command in this process."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from falaj.workloads.batch import command
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site

Batch = Callable[..., "Ran"]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    status: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        assert self.status == 0, self.err
        return json.loads(self.out.splitlines()[-1])


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A registry with models of a table (`table`), of a vector and of an image."""
    site = Site(tmp_path_factory.mktemp("batch") / "site")
    for name, model in (
        ("mlp", models.mlp(sizes=(4, 3))), ("image", models.classifier()),
    ):  # fmt: skip
        site.publish(model, name=name)
    site.write(model="table")
    site.publish(models.table())
    return site


def options(site: Site, model: str = "table") -> list[str]:
    """What every run is told."""
    return [
        "--registry", str(site.root / "registry"), "--model", model,
        "--keyring", str(site.root / "keyring"), "--threads", "1",
    ]  # fmt: skip


@pytest.fixture
def batch(published: Site, capsys: pytest.CaptureFixture[str]) -> Iterator[Batch]:
    """Run the command: inputs and options in any order; with ``model`` another one."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def run(*words: object, model: str = "table", name: str = "run") -> Ran:
        more = [*options(published, model), "--json"] if name == "run" else []
        status = command.main([name, *more, *map(str, words)])
        captured = capsys.readouterr()
        return Ran(status, captured.out, captured.err)

    yield run
    for number, handler in kept.items():
        signal.signal(number, handler)
