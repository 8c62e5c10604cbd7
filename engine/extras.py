"""Which modules need which extra of the distribution, stated once.

An extra is a group of requirements (``pyproject.toml``, ``requirements/<extra>.txt``) that only
some users need. Every module that is not named here needs the base requirements alone. Tests hold
that an environment with one extra alone can import all of that extra's modules, and one without
any extra all the others.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Final

#: Extras by the modules that need them; of several that fit, the longest name decides. A module
#: below several extras needs each of them.
EXTRAS: Final[Mapping[str, frozenset[str]]] = {
    "falaj": frozenset(),
    "falaj.workloads": frozenset({"local"}),
    "falaj.workloads.openvino_session": frozenset({"openvino"}),
    "falaj.components.aws": frozenset({"aws"}),
    "falaj.components.azure": frozenset({"azure"}),
    "falaj.components.kubernetes": frozenset({"kubernetes"}),
    "falaj.engine.controlplane": frozenset({"kubernetes"}),
    "falaj.sandbox.cluster": frozenset({"kubernetes"}),
    "falaj.components.local.provider.daemons": frozenset({"local"}),
    "falaj.components.local.provider.service": frozenset({"local"}),
    "falaj.components.local.provider.resources": frozenset({"local"}),
    "falaj.components.local.provider.workloads": frozenset({"local"}),
    "falaj.components.local.supervision": frozenset({"local"}),
    # It runs programs that need the other one.
    "falaj.stacks.command.bringing": frozenset({"kubernetes", "local"}),
    "falaj.stacks.command.cluster": frozenset({"kubernetes"}),
    "falaj.stacks.command.in_cluster": frozenset({"kubernetes"}),
    "falaj.stacks.command.loading": frozenset({"kubernetes"}),
    "falaj.stacks.command.models": frozenset({"local"}),
    "falaj.stacks.command.pods": frozenset({"kubernetes"}),
    "falaj.stacks.models": frozenset({"local"}),
    "falaj.stacks.page": frozenset({"local"}),
    "falaj.stacks.watching": frozenset({"local"}),
    "falaj.stacks.preflight.aws": frozenset({"aws"}),
    "falaj.stacks.preflight.azure": frozenset({"azure"}),
}
#: Extras by the packages of providers whose SDK they hold.
OF_PROVIDERS: Final[Mapping[str, str]] = {
    "aws": "aws",
    "azure-native": "azure",
    "kubernetes": "kubernetes",
}
DISTRIBUTION: Final = "falaj"


def extras_of(module: str) -> frozenset[str]:
    """The extras that a module of ours needs.

    >>> extras_of("falaj.components.aws.network") == {"aws"}
    True
    """
    name = module
    while name and name not in EXTRAS:
        name = name.rpartition(".")[0]
    return EXTRAS.get(name, frozenset())


def names() -> list[str]:
    """Every extra that the installed distribution knows."""
    return sorted(importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or [])


def is_installed(extra: str) -> bool:
    """Whether all that an extra asks for is there, in whatever version."""
    from packaging.requirements import Requirement  # noqa: PLC0415 - asked for by few commands

    wanted = map(Requirement, importlib.metadata.requires(DISTRIBUTION) or [])
    return all(
        _is_there(each.name)
        for each in wanted
        if each.marker is not None
        and each.marker.evaluate({"extra": extra})
        and not each.marker.evaluate({"extra": ""})
    )


def _is_there(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
