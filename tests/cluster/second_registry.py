"""Two registries of packages in the country, the first of which is lost."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.workloads.registry.package import Package
from falaj.workloads.registry.publishing import import_package
from falaj.workloads.registry.store import Store
from tests.stacks.images.registries import Registry, running
from tests.stacks.models.published import MODEL, Publisher, run


@dataclass(frozen=True)
class Registries:
    """One's own, and that of the second site, with a publisher at the first."""

    publisher: Publisher
    first: Registry
    second: Registry
    folder: Path
    _first_runs: ExitStack

    def publish(self, name: str) -> str:
        """Publish a version and send it to the first registry; its digest there."""
        version = self.publisher.publish(name)
        return str(
            _answer(
                "push", self.first.address, MODEL, "--version", str(version),
                "--from", str(self.publisher.store.root),
                "--keyring", str(self.publisher.keyring.path),
            )["packageDigest"]
        )  # fmt: skip

    def copy(self, *more: str, status: int = 0) -> dict[str, Any]:
        """Copy everything to the second; what the command says of it."""
        return _answer("copy", self.first.address, self.second.address, *more, status=status)

    def lose_the_first(self) -> None:
        self._first_runs.close()

    def has_lost_the_first(self) -> bool:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            status = run("copy", self.first.address, self.second.address)
        return status == 2 and "can't be reached" in said.getvalue()

    def is_at_the_second(self, digest: str) -> bool:
        with contextlib.redirect_stderr(io.StringIO()):
            return run("show", self.second.address, MODEL, "--digest", digest) == 0

    def opened_at_the_second(self, digest: str) -> Package:
        """What a replica there does: the package by its digest, verified, taken over, opened."""
        keyring = self.publisher.keyring
        target = self.folder / "taken"
        _answer(
            "pull", self.second.address, MODEL, "--digest", digest, "--to", str(target),
            "--verify-key", self.publisher.verify_key,
        )  # fmt: skip
        manifest = json.loads((target / "manifest.json").read_bytes())
        store = Store(self.folder / "replica")
        return import_package(
            store, MODEL, manifest["version"], target, keys=keyring,
            verify_key=keyring.verify_key(),
        )  # fmt: skip


def _answer(*arguments: str, status: int = 0) -> dict[str, Any]:
    with (
        contextlib.redirect_stdout(io.StringIO()) as said,
        contextlib.redirect_stderr(io.StringIO()) as complained,
    ):
        found = run(*arguments, "--json")
    assert found == status, complained.getvalue()
    answer: dict[str, Any] = json.loads(said.getvalue())
    return answer


@contextmanager
def registries(folder: Path) -> Generator[Registries]:
    """Both on loopback; whichever still runs is ended."""
    with ExitStack() as first_runs, running(folder / "second") as second:
        first = first_runs.enter_context(running(folder / "first"))
        yield Registries(Publisher(folder / "site"), first, second, folder, first_runs)
