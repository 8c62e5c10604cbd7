"""A stack as a picture: where things are, what may talk to what, which key encrypts what.

>>> from falaj.stacks import drawing
>>> print(drawing.of([]).as_text(), end="")
An empty stack: nothing to draw.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from falaj.stacks.drawing import cluster, flows, keys, places, svg, terminal
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.model import Edge, Node, Picture, in_order
from falaj.stacks.resources import State, stack_of

__all__ = ["NARROWEST", "Drawing", "Edge", "Node", "of"]


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


def of(resources: Iterable[State]) -> Drawing:
    """The drawing of a stack, from its resources.

    Args:
        resources: as the engine writes them (`falaj.stacks.resources.of_preview`, `of_export`).

    Raises:
        StackError: the resources can't be read.
    """
    stack = stack_of(sorted(resources, key=_urn))
    builder = Builder(stack)
    places.networks(builder)
    places.add_resources(builder)
    parts = places.parts(builder)
    places.add_local_resources(builder)
    flows.aws_flows(builder, parts)
    flows.azure_flows(builder)
    objects = cluster.add_objects(builder)
    cluster.flows(objects)
    keys.keys(builder, parts)
    keys.access(builder)
    flows.openings(builder, parts)
    edges = tuple(builder.edges())
    nodes = tuple(in_order(builder.nodes.values()))
    drawn = {each.urn for each in nodes} | {urn for each in edges for urn in each.urns}
    left_out: dict[str, int] = {}
    for each in stack.resources:
        if each.custom and each.urn not in drawn and each.package != "pulumi":
            left_out[each.kind] = left_out.get(each.kind, 0) + 1
    return Drawing(stack.name, nodes, edges, dict(sorted(left_out.items())), builder.hidden)


def _urn(state: State) -> str:
    return str(state.get("urn")) if hasattr(state, "get") else ""
