"""What the aliases of a served model stand for, as the registry on this machine says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from falaj.wire.documents import is_mapping
from falaj.workloads.registry.alias_list import Alias
from falaj.workloads.registry.store import Store


def store_of(config: Mapping[str, Any]) -> Store:
    """The registry of a server, by what it was told (``service.json``)."""
    return Store(Path(str(config["registry"])))


def alias_of(config: Mapping[str, Any], name: str | None = None) -> Alias | None:
    """What an alias of the model stands for; None: nothing.

    Args:
        config: what the server was told.
        name: of the alias. Default: the one that the server follows.

    Raises:
        WorkloadError: the list can't be read, or isn't what was signed.
    """
    return store_of(config).aliases(str(config["model"])).get(name or str(config["alias"]))


def second_alias(config: Mapping[str, Any], section: str = "shadow") -> str | None:
    """The alias of the version beside the one that serves; None: the server has none.

    Args:
        config: what the server was told.
        section: ``experiment``, or ``shadow`` for the one that gets copies of requests.
    """
    asked = config.get(section)
    return str(asked["alias"]) if is_mapping(asked) else None
