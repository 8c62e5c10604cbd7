"""A picture that draws itself."""

from __future__ import annotations

from dataclasses import dataclass

from falaj.stacks.drawing import svg, terminal
from falaj.stacks.drawing.model import Picture

#: Columns below which boxes have no room for names.
NARROWEST = 40


@dataclass(frozen=True)
class Drawing(Picture):
    """A stack as a picture."""

    def as_text(self, width: int = 80) -> str:
        """The drawing with box characters, for a terminal of so many columns (40 at least)."""
        return terminal.draw(self, max(width, NARROWEST))

    def as_svg(self) -> str:
        """The drawing as one SVG file that needs nothing else, 1,280 pixels wide."""
        return svg.draw(self)
