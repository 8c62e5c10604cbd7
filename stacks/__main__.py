"""The Pulumi program: typed settings of the stack, then its platform's blueprint."""

from __future__ import annotations

from pathlib import Path

import pulumi

from stacks.blueprints import local
from stacks.errors import StackError
from stacks.settings import load_engine


def main() -> None:
    """Declare the stack's resources.

    Raises:
        pulumi.RunError: the configuration was refused; no resource was registered.
    """
    root = Path(__file__).resolve().parents[1]
    try:
        settings = load_engine(pulumi.get_stack(), root)
    except StackError as error:
        raise pulumi.RunError(str(error)) from None
    local.declare(settings, root)


main()
