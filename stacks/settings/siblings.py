"""The other stacks of a project, by their files: names, and as much as others need to know."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from falaj.stacks.settings.document import Document, Scalar, resolved
from falaj.stacks.settings.given import Given
from falaj.stacks.settings.parsing import read
from falaj.stacks.settings.problems import NAMESPACE

_PROJECT_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Sibling:
    """A stack that has a file, or that is made from a template when it is needed."""

    name: str
    platform: str
    """Empty where its file says none, as with several places."""
    blueprint: str
    stands_on: str
    """The foundation that it refers to; empty where it makes its own."""


def siblings(given: Given, root: Path | None) -> list[Sibling]:
    """All stacks of the project, in the order of their names.

    Args:
        given: what one of them says: its file is beside the others'.
        root: the project's folder, which says where files are if nobody else does.
    """
    folder = given.stack_file.path.parent if given.stack_file else stack_folder(root)
    if folder is None:
        return []
    files = {path.stem.removeprefix("Pulumi."): path for path in folder.glob("Pulumi.*.yaml")}
    for template in sorted((folder / "templates").glob("*.yaml")):
        files.setdefault(template.stem, template)
    return [_sibling(name, path) for name, path in sorted(files.items())]


def stack_folder(root: Path | None) -> Path | None:
    """Where the stack files of a project are; None where there is no project."""
    if root is None or not (root / _PROJECT_FILE).is_file():
        return None
    document = read(root / _PROJECT_FILE, _PROJECT_FILE)
    return root / (_text(document, "stackConfigDir") or ".")


def _sibling(name: str, path: Path) -> Sibling:
    document = read(path, path.name)

    def said(key: str) -> str:
        return _text(document, "config", f"{NAMESPACE}:{key}")

    return Sibling(name, said("platform"), said("blueprint"), said("foundation"))


def _text(document: Document, *way: str) -> str:
    node = resolved(document.node(way))
    return node.text if isinstance(node, Scalar) else ""
