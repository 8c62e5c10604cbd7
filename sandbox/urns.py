"""The parts of a URN: ``urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME``."""

from __future__ import annotations

from falaj.engine.errors import EngineError


def _parts(urn: str) -> list[str]:
    parts = urn.split("::", 3)
    if len(parts) != 4 or not parts[0].startswith("urn:pulumi:"):
        raise EngineError(
            f"{urn!r} is no URN; it reads urn:pulumi:STACK::PROJECT::TYPE::NAME, as "
            "`falaj sandbox list` shows it"
        )
    return parts


def token(urn: str) -> str:
    """The resource's type. Raises EngineError for what is no URN."""
    return _parts(urn)[2].rsplit("$", 1)[-1]


def name(urn: str) -> str:
    """The resource's name. Raises EngineError for what is no URN."""
    return _parts(urn)[3]


def stack(urn: str) -> str:
    """The stack, as ``project/stack``. Raises EngineError for what is no URN."""
    parts = _parts(urn)
    return f"{parts[1]}/{parts[0].removeprefix('urn:pulumi:')}"


def make(stack: str, project: str, token: str, name: str) -> str:
    """The URN of a resource without a parent."""
    return f"urn:pulumi:{stack}::{project}::{token}::{name}"
