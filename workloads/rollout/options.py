"""Options of a command line whose values have bounds."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from falaj.workloads.bounds import Bound
from falaj.workloads.errors import WorkloadError


def add_bounded(
    parser: argparse.ArgumentParser, bounds: Mapping[str, Bound], words: Mapping[str, str]
) -> None:
    """Add options that have a default each.

    Args:
        parser: gets them.
        bounds: by the name that an option's value has.
        words: what each is, in the order in which they are listed.
    """
    for name, what in words.items():
        bound = bounds[name]
        parser.add_argument(
            _option(name), type=int if bound.whole else float, default=bound.usual,
            help=f"{what}: {bound.description}; default: %(default)s",
        )  # fmt: skip


def require_bounded(options: argparse.Namespace, bounds: Mapping[str, Bound]) -> None:
    """Refuse values out of their bounds.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    for name, bound in bounds.items():
        value = getattr(options, name)
        if not bound.allows(value):
            raise WorkloadError(f"{_option(name)}: given {value}; allowed: {bound.description}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
