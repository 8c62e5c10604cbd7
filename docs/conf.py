"""How Sphinx builds the documentation: offline, from this folder and the product's own models."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_extensions")]

from falaj import __version__  # noqa: E402

project = "Falaj"
author = "Falaj"
release = version = __version__
language = "en"
extensions = ["myst_parser", "falaj_directives"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build", "_extensions"]
# A link to a page or heading that isn't there is an error: `make docs` lets no warning pass.
nitpicky = True
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 4
# Blocks name the test that runs them after their language (tests/newcomer/documents.py).
highlight_language = "none"
# What stands in quotes is what a file or a command takes: as it is.
smartquotes = False
html_theme = "furo"
html_title = f"Falaj {__version__}"
# The pages are read from a folder, without a server and without a network: nothing of elsewhere.
html_theme_options: dict[str, list[str]] = {"footer_icons": []}
html_copy_source = False
html_show_sourcelink = False
html_use_index = False
html_show_sphinx = False
