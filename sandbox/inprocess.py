"""The sandbox inside a test's own process, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falaj.sandbox import models, urns
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.clouds.model import CloudModel, Problem
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.store import Store


class Sandbox:
    """Checks, makes and queries in plain Python.

    Args:
        cloud: ``aws``, ``azure-native`` (``azure`` for short) or ``kubernetes``.
        store: a `Store`, shared by several clouds, or the path of one; in memory by default.
        config: the provider's own settings, such as its region; none by default.
        model: what is known of the cloud; by default the sandbox's own model of it.

    Raises:
        EngineError: the cloud is none of these, or its SDK isn't installed.
    """

    def __init__(
        self,
        cloud: str,
        store: Store | Path | str = ":memory:",
        config: Mapping[str, Any] | None = None,
        model: CloudModel | None = None,
    ) -> None:
        package = "azure-native" if cloud == "azure" else cloud
        self.store = store if isinstance(store, Store) else Store(store)
        self.cloud = Cloud(model or models.load(package), self.store)
        if config is not None:
            self.cloud.configure(config)

    def check(
        self, token: str, name: str, inputs: Mapping[str, Any], urn: str | None = None
    ) -> tuple[dict[str, Any], list[Problem]]:
        """The inputs with the provider's defaults, and all that is wrong with them."""
        return self.cloud.check(urn or _urn(token, name), inputs, {})

    def create(
        self, token: str, name: str, inputs: Mapping[str, Any], urn: str | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Check and make a resource: its id and outputs.

        Raises:
            SandboxError: the inputs are wrong, or the cloud would refuse them.
            FaultError: a fault was asked for.
        """
        own = urn or _urn(token, name)
        checked, problems = self.cloud.check(own, inputs, {})
        if problems:
            raise SandboxError(problems, f"{token} {name}")
        return self.cloud.create(own, checked)

    def invoke(self, token: str, args: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a query. Raises SandboxError when it isn't known or is refused."""
        return self.cloud.invoke(token, args)


def _urn(token: str, name: str) -> str:
    return urns.make("stack", "project", token, name)
