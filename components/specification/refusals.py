"""Collects what is wrong with a component's arguments, and refuses all of it at once."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pulumi

_OUTPUT = "is an output; it has to be a plain value, known before anything runs"


class Refusals:
    """Problems of one component, by argument."""

    def __init__(self, component: str) -> None:
        """``component`` is its class and name, as ``Network 'core'``."""
        self._component = component
        self._found: list[tuple[str, str]] = []

    @property
    def count(self) -> int:
        """How many problems were found so far."""
        return len(self._found)

    def add(self, argument: str, given: object, allowed: str, hint: str = "") -> None:
        """A value that isn't allowed; ``hint`` says what to change."""
        self.say(argument, f"given {given!r}; allowed: {allowed}" + (f"; {hint}" if hint else ""))

    def say(self, argument: str, reason: str) -> None:
        """A problem in words of its own: what was wrong, what is allowed, what to change."""
        if (argument, reason) not in self._found:
            self._found.append((argument, reason))

    def names(self, args: Mapping[str, Any], kind: type) -> None:
        """Refuse arguments that ``kind``, a TypedDict, doesn't have; and the lack of one it needs.

        Other languages and programs without a type checker get here whatever was written. An
        output where a plain value is needed is refused, too: it would be known too late, and what
        depends on it can't be checked.

        Raises:
            pulumi.InputPropertiesError: at once where there is such an output.
        """
        hints = kind.__annotations__
        known: list[str] = sorted(hints)
        late = False
        for name, value in args.items():
            if name in hints:
                if isinstance(value, pulumi.Output) and "Output[" not in str(hints[name]):
                    self.say(name, _OUTPUT)
                    late = True
                continue
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(known)}"
            self.say(name, f"is not an argument of {kind.__name__}; {hint}")
        required = cast("frozenset[str]", getattr(kind, "__required_keys__", frozenset[str]()))
        self.needed(args, sorted(required))
        if late:
            self.raise_if_any()

    def needed(self, args: Mapping[str, Any], arguments: Sequence[str], where: str = "") -> None:
        """Refuse the lack of ``arguments``; ``where`` says for what they are needed."""
        for argument in arguments:
            if args.get(argument) is None:
                self.say(argument, "missing" + (f"; needed {where}" if where else ""))

    def text(self, args: Mapping[str, Any], argument: str) -> str:
        """A required plain text; empty where it was refused."""
        value = args.get(argument)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, pulumi.Output):
            self.say(argument, _OUTPUT)
        elif value is None:
            self.say(argument, "missing")
        else:
            self.add(argument, value, "text that is not empty")
        return ""

    def choice(self, argument: str, value: object, allowed: Sequence[str]) -> None:
        """Refuse a value that is none of ``allowed``."""
        if value not in allowed:
            self.add(argument, value, ", ".join(allowed))

    def whole(self, argument: str, value: object, low: int, high: int) -> int:
        """A whole number between two limits; ``low`` where it was refused.

        Numbers from programs in other languages arrive as floats: a whole one is taken.
        """
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and float(value).is_integer()
            and low <= value <= high
        ):
            return int(value)
        self.add(argument, value, f"a whole number from {low} to {high}")
        return low

    def choice_of_numbers(self, argument: str, value: object, allowed: Sequence[int]) -> None:
        """Refuse a value that is none of the numbers ``allowed``."""
        if isinstance(value, bool) or value not in allowed:
            self.add(argument, value, ", ".join(str(each) for each in allowed))

    def flag(self, argument: str, value: object) -> bool:
        """True or false; false where it was refused."""
        if isinstance(value, bool):
            return value
        self.add(argument, value, "true or false")
        return False

    def texts(self, argument: str, value: object) -> tuple[str, ...]:
        """A list of plain texts, each once; those that can't be used are refused."""
        if isinstance(value, str) or not isinstance(value, Sequence):
            self.add(argument, value, "a list of texts, plain values known before anything runs")
            return ()
        found: list[str] = []
        for position, item in enumerate(cast("Sequence[object]", value)):
            at = f"{argument}[{position}]"
            if not isinstance(item, str) or not item.strip():
                self.add(at, item, "text that is not empty")
            elif item.strip() in found:
                self.add(at, item, "each only once", "leave out the second")
            else:
                found.append(item.strip())
        return tuple(found)

    def mapping(self, argument: str, value: object) -> dict[str, str]:
        """Plain texts by name; empty where it was refused."""
        if isinstance(value, Mapping):
            items = dict(cast("Mapping[object, object]", value))
            if all(isinstance(k, str) and isinstance(v, str) for k, v in items.items()):
                return {str(key): str(text) for key, text in items.items()}
        self.add(argument, value, "texts by name")
        return {}

    def raise_if_any(self) -> None:
        """Refuse the component if something was wrong.

        Raises:
            pulumi.InputPropertiesError: with the argument and the reason of each problem.
        """
        if not self._found:
            return
        listed = "\n".join(f"  {argument}: {reason}" for argument, reason in self._found)
        raise pulumi.InputPropertiesError(
            f"{self._component} was refused:\n{listed}",
            [{"property_path": argument, "reason": reason} for argument, reason in self._found],
        )
