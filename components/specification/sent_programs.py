"""Programs that are sent as text to machines and containers, which have none of the components."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

_COMPONENTS = __name__.partition(".")[0] + ".components."


def program(path: Path) -> str:
    """Text of a program, in which stands what it imports of the components.

    Args:
        path: the program. What it imports so, it imports by name, and that module imports nothing
            of the components itself.

    Raises:
        ValueError: it renames what it imports; names in the text would mean nothing then.
    """
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for node in reversed(ast.parse(text).body):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_COMPONENTS):
            if any(each.asname for each in node.names):
                raise ValueError(f"{path}:{node.lineno}: renames what it imports")
            lines[node.lineno - 1 : node.end_lineno] = _body(str(node.module))
    return "".join(lines)


def _body(module: str) -> list[str]:
    """The lines of a module without what may stand at a file's beginning alone."""
    found = importlib.util.find_spec(module)
    text = Path(str(found and found.origin)).read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
                for position in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[position] = ""
            case _:
                pass
    return ["".join(lines).strip("\n") + "\n\n"]
