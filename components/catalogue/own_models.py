"""What a training says of a model of a team's own."""

from typing import Final

OWN_MODEL: Final = frozenset({"model", "code", "options"})
"""Class, folder and options: on one machine they train it, and pods don't take them."""
