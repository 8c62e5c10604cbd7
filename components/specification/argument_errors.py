"""Collects what is wrong with a component's arguments, and refuses all of it at once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast, get_args, get_origin, is_typeddict

import pulumi

from falaj.components.nearest import nearest
from falaj.components.specification.arguments import (
    Argument,
    arguments_of,
    hints,
    needed_of,
    with_defaults,
)
from falaj.components.specification.given_values import without_user
from falaj.components.specification.limits import (
    Between,
    ByCloud,
    Hint,
    Limit,
    OneOf,
    TextRule,
)
from falaj.wire.documents import is_mapping

_ANY_NUMBER = Between(-math.inf, math.inf)
_PLURALS: dict[Any, str] = {str: "texts", int: "whole numbers", float: "numbers"}
_OUTPUT = "is an output; it has to be a plain value, known before anything runs"


@dataclass(frozen=True)
class ArgumentError:
    """One problem: what messages say of it, and the rule where it can be named."""

    argument: str
    """The argument's path, as ``zones[0]`` or ``tenants.acme.quotas``."""
    reason: str
    limit: Limit | None = None
    """What would be allowed there. None: the reason says it."""
    unknown: bool = False
    """Whether there is no such argument."""


class InvalidArgumentsError(pulumi.InputPropertiesError):
    """A component's arguments were refused."""

    def __init__(self, component: str, errors: Sequence[ArgumentError]) -> None:
        """``component`` is its class and name, as ``Network 'core'``."""
        listed = "\n".join(f"  {each.argument}: {each.reason}" for each in errors)
        super().__init__(
            f"{component} was refused:\n{listed}",
            [{"property_path": each.argument, "reason": each.reason} for each in errors],
        )
        self.problems = tuple(errors)


class ArgumentErrors:
    """Problems of one component, by argument."""

    def __init__(self, component: str) -> None:
        """``component`` is its class and name, as ``Network 'core'``."""
        self._component = component
        self._found: list[ArgumentError] = []
        self._times = 0

    @property
    def count(self) -> int:
        """How often something was refused so far, what was refused before among it.

        Two checks may meet one argument: the second one has to see that it can't be used as well.
        """
        return self._times

    def has(self, *arguments: str) -> bool:
        """Whether one of ``arguments`` was refused."""
        return any(each.argument in arguments for each in self._found)

    def add(
        self,
        argument: str,
        given: object,
        allowed: str | Limit,
        hint: str = "",
        *,
        limit: Limit | None = None,
    ) -> None:
        """A value that isn't allowed; ``hint`` says what to change.

        Args:
            argument: its path.
            given: what was given.
            allowed: the rule, or words where it needs more of them.
            hint: what to change.
            limit: the rule behind such words, where there is one.
        """
        words, limit = (
            (allowed, limit) if isinstance(allowed, str) else (allowed.description, allowed)
        )
        reason = f"given {without_user(repr(given))}; allowed: {words}" + (
            f"; {hint}" if hint else ""
        )
        self._note(ArgumentError(argument, reason, limit))

    def say(self, argument: str, reason: str, *, limit: Limit | None = None) -> None:
        """A problem in words of its own: what was wrong, what is allowed, what to change."""
        self._note(ArgumentError(argument, reason, limit))

    def unknown(self, argument: str, kind: str, allowed: Sequence[str], what: str) -> None:
        """An argument that ``kind`` doesn't have; ``what`` is what that has: its arguments."""
        near = nearest(argument.rpartition(".")[2], allowed)
        hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(allowed)}"
        self._note(
            ArgumentError(
                argument, f"is not an {what} of {kind}; {hint}", OneOf(tuple(near)), unknown=True
            )
        )

    def _note(self, error: ArgumentError) -> None:
        self._times += 1
        if error not in self._found:
            self._found.append(error)

    def names(self, args: Mapping[str, Any], kind: type) -> None:
        """Refuse arguments that ``kind``, a TypedDict, doesn't have; and the lack of one it needs.

        Other languages and programs without a type checker get here whatever was written. An
        output where a plain value is needed is refused, too: it would be known too late, and what
        depends on it can't be checked.

        Raises:
            pulumi.InputPropertiesError: at once where there is such an output.
        """
        known = hints(kind)
        late = False
        for name, value in args.items():
            if name in known:
                if isinstance(value, pulumi.Output) and "Output[" not in str(known[name]):
                    self.say(name, _OUTPUT)
                    late = True
                continue
            self.unknown(name, kind.__name__, sorted(known), "argument")
        self.needed(args, needed_of(kind))
        if late:
            self.raise_if_any()

    def checked(self, args: Mapping[str, Any], kind: type, cloud: str = "") -> dict[str, Any]:
        """The plain arguments of ``kind``, each held to its type and limit, or its default.

        What is refused is there as well, as far as it can be used, so that checks of several
        arguments together go on. An argument without a default that is left out is None.

        Args:
            args: the component's arguments.
            kind: the TypedDict that states them.
            cloud: ``aws`` or ``azure``, for limits that differ.
        """
        self.names(args, kind)
        return self.checked_only(args, kind, cloud)

    def checked_only(
        self, args: Mapping[str, Any], kind: type, cloud: str = "", at: str = ""
    ) -> dict[str, Any]:
        """As `checked`, where ``args`` may have other arguments beside those of ``kind``.

        ``at`` is what their paths begin with, as ``drift.``.
        """
        found = with_defaults(kind, args)
        for name, argument in arguments_of(kind).items():
            if name in found and args.get(name) is not None:
                found[name] = self._one(argument, f"{at}{name}", args[name], cloud)
        return found

    def _one(self, argument: Argument, name: str, value: object, cloud: str) -> Any:
        limit = argument.limit
        if isinstance(limit, ByCloud) and cloud:
            limit = limit.on(cloud)
        if get_origin(argument.type) is dict and _is_stated(argument):
            return self._by_name(argument, name, value, limit)
        if get_origin(argument.type) is not list:
            return self._plain(name, value, argument.type, limit)
        if argument.is_command:
            return self.words(name, value)
        of = get_args(argument.type)[0]
        items: Sequence[object] = ()
        if of is str:
            items = self.texts(name, value)
        elif isinstance(value, str) or not isinstance(value, Sequence):
            self.add(name, value, "a list of whole numbers" if of is int else "a list")
        else:
            items = cast("Sequence[object]", value)
        self._count(argument, name, len(items))
        return tuple(
            self._plain(f"{name}[{position}]", item, of, limit)
            for position, item in enumerate(items)
        )

    def _by_name(
        self, argument: Argument, name: str, value: object, limit: Limit | None
    ) -> dict[str, Any]:
        of = get_args(argument.type)[1]
        if not isinstance(value, Mapping):
            self.add(name, value, f"{_PLURALS.get(of, 'options')} by name")
            return {}
        items = {str(key): each for key, each in cast("Mapping[object, Any]", value).items()}
        self._count(argument, name, len(items))
        if argument.names is not None:
            for key in items:
                self.form(name, key, argument.names)
        if of is str and limit is None:
            # Nothing is a value of such a text as well.
            return self.mapping(name, items)
        return {
            key: self._plain(f"{name}[{key!r}]", each, of, limit) for key, each in items.items()
        }

    def _count(self, argument: Argument, name: str, count: int) -> None:
        length = argument.length
        if length and not length.min_length <= count <= (length.max_length or math.inf):
            self.say(name, f"given {count} of them; allowed: {argument.allowed}")

    def _plain(self, name: str, value: object, kind: Any, limit: Limit | None) -> Any:
        if isinstance(limit, OneOf):
            self.choice(name, value, limit)
            # Numbers from programs in other languages arrive as floats.
            return int(value) if isinstance(value, float) and limit.allows(value) else value
        if kind is int:
            return self.within(name, value, limit if isinstance(limit, Between) else _ANY_NUMBER)
        if kind is float:
            return self._number(name, value, limit)
        if kind is bool:
            return self.flag(name, value)
        if kind is not str:
            return value  # whose check knows its form
        if isinstance(limit, TextRule):
            self.form(name, value, limit)
        elif not isinstance(value, str) or not value.strip():
            self.add(name, value, "text that is not empty")
        return value.strip() if isinstance(value, str) else str(value)

    def _number(self, name: str, value: object, limit: Limit | None) -> Any:
        rule = limit if isinstance(limit, Between) else _ANY_NUMBER
        if rule.allows(value) and math.isfinite(cast("float", value)):
            return value
        words = "a number" if rule is _ANY_NUMBER else f"a number {rule.description}"
        self._note(ArgumentError(name, f"given {value!r}; allowed: {words}", rule))
        return rule.low if math.isfinite(rule.low) else 0

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

    def choice(self, argument: str, value: object, allowed: OneOf | Sequence[str | int]) -> None:
        """Refuse a value that is none of ``allowed``."""
        rule = allowed if isinstance(allowed, OneOf) else OneOf(tuple(allowed))
        if not rule.allows(value):
            usual = Hint("write it as text" if str(value) in rule.values else rule.otherwise)
            hint = rule.hints.get(str(value), usual)
            limit = OneOf((hint.meant,)) if hint.meant else rule
            self.add(argument, value, rule.description, hint.text, limit=limit)

    def form(self, argument: str, value: object, rule: TextRule) -> None:
        """Refuse a text that isn't of the form."""
        if not rule.allows(value):
            self.add(argument, value, rule)

    def whole(self, argument: str, value: object, low: int, high: int) -> int:
        """A whole number between two limits; ``low`` where it was refused."""
        return self.within(argument, value, Between(low, high))

    def within(self, argument: str, value: object, rule: Between) -> int:
        """A whole number in a range; its low end where it was refused.

        Numbers from programs in other languages arrive as floats: a whole one is taken.
        """
        if rule.allows(value) and float(cast("float", value)).is_integer():
            return int(cast("float", value))
        words = "a whole number" if rule is _ANY_NUMBER else f"a whole number {rule.description}"
        self._note(ArgumentError(argument, f"given {value!r}; allowed: {words}", rule))
        return int(rule.low) if math.isfinite(rule.low) else 0

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

    def words(self, argument: str, value: object) -> tuple[str, ...]:
        """A command line's words, in order; unlike names, one may come twice."""
        if isinstance(value, str) or not isinstance(value, Sequence):
            allowed = "a list of texts, one for each word of the command line"
            self.add(argument, value, allowed)
            return ()
        found: list[str] = []
        for position, word in enumerate(cast("Sequence[object]", value)):
            if isinstance(word, str) and word:
                found.append(word)
            else:
                self.add(f"{argument}[{position}]", word, "text that is not empty")
        return tuple(found)

    def mapping(self, argument: str, value: object) -> dict[str, str]:
        """Plain texts by name; empty where it was refused."""
        if is_mapping(value) and all(
            isinstance(name, str) and isinstance(text, str)
            for name, text in cast("Mapping[object, object]", value).items()
        ):
            return dict(value)
        self.add(argument, value, "texts by name")
        return {}

    def raise_if_any(self) -> None:
        """Refuse the component if something was wrong.

        Raises:
            InvalidArgumentsError: with the argument and the reason of each problem.
        """
        if not self._found:
            return
        raise InvalidArgumentsError(self._component, self._found)


def _is_stated(by_name: Argument) -> bool:
    """Whether the annotation says all of the form: values of other types have checks that do."""
    of = get_args(by_name.type)[1]
    limited = by_name.length is not None or by_name.names is not None
    return limited or of is bool or of in _PLURALS or is_typeddict(of)
