"""A directive for Sphinx that puts a part of the reference into a page.

In a page: ```` ```{falaj-reference} settings ```` and an end of the block. What it may name is in
`reference.TEXTS`. The text is made when the site is built, in the environment that builds it.
"""

from __future__ import annotations

from typing import Any

import reference
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Reference(SphinxDirective):
    """The text that its arguments name, as if it stood in the page."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The parsed text; a wrong argument is an error of the build."""
        try:
            text = reference.text_of(self.arguments[0].split())
        except ValueError as error:
            raise self.error(str(error)) from None
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx of the directive."""
    app.add_directive("falaj-reference", Reference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
