"""What the sandbox refuses, in words for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from falaj.engine.errors import EngineError
from falaj.sandbox.clouds.model import Problem, Properties


class SandboxError(EngineError):
    """A cloud would have refused this; `problems` says which properties are wrong and why."""

    def __init__(self, problems: Sequence[Problem], about: str = "") -> None:
        self.problems = tuple(problems)
        lines = [str(problem) for problem in problems]
        text = lines[0] if len(lines) == 1 else "\n".join(f"- {line}" for line in lines)
        separator = " " if len(lines) == 1 else "\n"
        super().__init__(f"{about}:{separator}{text}" if about else text)


class PartialError(EngineError):
    """An operation failed, but something may have been made or changed all the same."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.state: tuple[str, Properties, Properties] | None = None
        """Id, outputs and inputs of what the cloud made all the same."""

    def with_state(self, id: str, outputs: Properties, inputs: Properties) -> Self:
        """The same, with what the cloud made."""
        self.state = (id, outputs, inputs)
        return self


class FaultError(PartialError):
    """A fault that was asked for (`falaj sandbox fault`).

    Attributes:
        timed_out: the cloud did the work, only the answer came too late.
    """

    def __init__(self, message: str, *, timed_out: bool) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class ModelError(EngineError):
    """What the sandbox knows of a cloud failed: a bug of Falaj, not of the stack."""

    def __init__(self, package: str, about: str, error: Exception) -> None:
        super().__init__(
            f"an internal error of the sandbox for {package}, at {about}: "
            f"{type(error).__name__}: {error}; this is a bug"
        )
