"""Rewrites references to images in YAML files to the mirror, and leaves the rest as it was.

Comments, order and quotes stay: texts are replaced where the parser found them. Known are single
texts (``image: quay.io/team/app:v1``) and the parts that charts take (``registry``,
``repository``, ``tag``, ``digest``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from falaj.policies.reading import images as references
from falaj.stacks.errors import StackError
from falaj.stacks.images.items import Item

_TEXT: Final = "tag:yaml.org,2002:str"
#: Keys whose texts are images, whatever they look like.
_KEYS: Final = re.compile(r"(^|.*[a-z_-])image$", re.IGNORECASE)
_PARTS: Final = ("registry", "repository")


@dataclass(frozen=True)
class Change:
    """One text that is replaced."""

    start: int
    end: int
    old: str
    new: str
    line: int


@dataclass
class Rewritten:
    """What became of a file."""

    text: str
    changes: list[Change] = field(default_factory=list[Change])
    unknown: list[str] = field(default_factory=list[str])
    """Images that stay as they were, each with the reason."""


def rewrite(text: str, items: Sequence[Item], registry: str) -> Rewritten:
    """Rewrite the references of a file.

    Args:
        text: YAML, one document or more.
        items: what is in the mirror.
        registry: the mirror's address.

    Raises:
        StackError: the text isn't YAML.
    """
    known: dict[str, list[Item]] = {}
    for item in items:
        if item.kind == "images" and item.source:
            image = references.parse(item.source)
            known.setdefault(f"{image.host}/{image.repository}", []).append(item)
    walk = _Walk(text, known, registry)
    try:
        for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
            walk.visit(document)
    except yaml.YAMLError as error:
        raise StackError(f"not YAML: {' '.join(str(error).split())}") from None
    for change in sorted(walk.changes, key=lambda each: -each.start):
        text = text[: change.start] + change.new + text[change.end :]
    return Rewritten(text, sorted(walk.changes, key=lambda each: each.start), walk.unknown)


class _Walk:
    def __init__(self, text: str, known: dict[str, list[Item]], registry: str) -> None:
        self._text = text
        self._known = known
        self._registry = registry
        self._seen: set[int] = set()
        self.changes: list[Change] = []
        self.unknown: list[str] = []

    def visit(self, node: Node | None, key: str = "") -> None:
        """Anchors lead to the same node more than once: each is changed once."""
        if node is None or id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, MappingNode):
            pairs = {str(name.value): value for name, value in _pairs(node)}
            parts = self._in_parts(pairs)
            for name, value in pairs.items():
                if name not in parts:
                    self.visit(value, name)
        elif isinstance(node, SequenceNode):
            for each in node.value:
                self.visit(each, key)
        elif isinstance(node, ScalarNode) and node.tag == _TEXT:
            self._single(node, key)

    def _single(self, node: ScalarNode, key: str) -> None:
        given = node.value
        if not references.is_plausible(given) or given.startswith(f"{self._registry}/"):
            return
        image = references.parse(given)
        item = self._find(image, image.tag)
        if item is None:
            # Elsewhere a text that looks like one may be anything.
            if _KEYS.match(key) and "/" in given:
                self._refuse(node, given, "is not in the bill of materials")
        elif node.style in ("|", ">"):
            self._refuse(node, given, "is in a block of text; write it in one line")
        elif reason := _differs(image.tag, image.digest, item):
            self._refuse(node, given, reason)
        else:
            new = item.at(self._registry) + (f"@{item.digest}" if item.digest else "")
            if not image.tag and not image.digest and not _KEYS.match(key):
                new = f"{self._registry}/{item.mirror}"  # a repository's name alone
            self._replace(node, new)

    def _in_parts(self, pairs: dict[str, Node]) -> frozenset[str]:
        """Handle ``registry`` and ``repository``; the names that were handled."""
        nodes = {name: pairs.get(name) for name in (*_PARTS, "tag", "digest")}
        texts = {name: node.value for name, node in nodes.items() if isinstance(node, ScalarNode)}
        registry, repository = nodes["registry"], nodes["repository"]
        if not isinstance(registry, ScalarNode) or not isinstance(repository, ScalarNode):
            return frozenset()
        if not texts["registry"] or f"{texts['registry']}/".startswith(f"{self._registry}/"):
            return frozenset()
        name = f"{texts['registry']}/{texts['repository']}"
        image = references.parse(name)
        item = self._find(image, texts.get("tag", ""))
        if item is None:
            self._refuse(repository, name, "is not in the bill of materials")
            return frozenset(_PARTS)
        if reason := _differs(texts.get("tag", ""), texts.get("digest", ""), item):
            self._refuse(repository, name, reason)
            return frozenset(_PARTS)
        host, _, path = self._registry.partition("/")
        self._replace(registry, host)
        self._replace(repository, f"{path}/{item.mirror}" if path else item.mirror)
        digest = nodes["digest"]
        if item.digest and isinstance(digest, ScalarNode) and not digest.value:
            self._replace(digest, item.digest)
        return frozenset(_PARTS)

    def _find(self, image: references.Image, tag: str) -> Item | None:
        """The item of a repository; of several the one with the tag."""
        found = self._known.get(f"{image.host}/{image.repository}", [])
        return next((each for each in found if each.tag == tag), found[0] if found else None)

    def _replace(self, node: ScalarNode, new: str) -> None:
        start, end = node.start_mark.index, node.end_mark.index
        # An anchor or a tag before the text belongs to the node, and stays.
        raw = self._text[start:end]
        start += raw.index(node.style) if node.style else raw.rindex(node.value)
        quoted = json.dumps(new) if node.style == '"' else f"'{new}'" if node.style else new
        line = node.start_mark.line + 1
        self.changes.append(Change(start, end, node.value, quoted, line))

    def _refuse(self, node: ScalarNode, given: str, reason: str) -> None:
        self.unknown.append(f"line {node.start_mark.line + 1}: {given} {reason}")


def _pairs(node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
    for name, value in node.value:
        if isinstance(name, ScalarNode):
            yield name, value


def _differs(tag: str, digest: str, item: Item) -> str:
    """Why a reference isn't what the mirror holds; empty where it is."""
    if tag and tag != item.tag:
        return f"has the tag {tag}; the mirror holds {item.tag}"
    if digest and item.digest and digest != item.digest:
        return f"has the digest {digest}; the mirror holds {item.digest}"
    return ""
