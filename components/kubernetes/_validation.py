"""Checks of arguments within arguments: as `ArgumentErrors` for the outermost, at any path."""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast, get_args, get_origin, is_typeddict

import pulumi

from falaj.components.catalogue.clusters import PRIVATE_RANGES, SHARED_RANGE
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import arguments_of, hints, needed_of
from falaj.components.specification.limits import SCHEDULE

Range: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
#: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123 labels)
_NAME: Final = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")
OBJECT: Final = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")
"""Names of objects that are values of labels as well: those of a label, and dots."""
RELATIVE_PATH: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")
"""A path below a claim, without ``..``."""
CRON: Final = re.compile(SCHEDULE.pattern)
"""Five fields of cron."""
TIME_ZONE: Final = re.compile(r"^[A-Za-z]+(/[A-Za-z0-9_+-]+)*$")
"""The form of names in the IANA's list of time zones."""
#: RFC 1918, RFC 6598 (carriers' and pods' addresses) and RFC 4193.
PRIVATE: Final = tuple(
    ipaddress.ip_network(each) for each in (*PRIVATE_RANGES, SHARED_RANGE, "fc00::/7")
)


def options(
    at: str, value: object, kind: type, errors: ArgumentErrors, *, required: bool = True
) -> Mapping[str, Any]:
    """``value`` as an object with the keys of ``kind``, a TypedDict; empty where it is none.

    Args:
        at: the argument's path.
        value: what was given.
        kind: the TypedDict.
        errors: gets what can't be used.
        required: whether the lack of a required key is refused here; false where whoever reads
            the keys refuses it.
    """
    if not isinstance(value, Mapping):
        known = ", ".join(sorted(kind.__annotations__))
        errors.add(at, value, f"an object with {known}")
        return {}
    given = cast("Mapping[str, Any]", value)
    known = hints(kind)
    for key, each in given.items():
        if key not in known:
            errors.unknown(f"{at}.{key}", kind.__name__, sorted(known), "option")
        elif isinstance(each, pulumi.Output) and "Output[" not in str(known[key]):
            errors.say(f"{at}.{key}", "is an output; it has to be a plain value, known beforehand")
    for key in needed_of(kind) if required else ():
        if given.get(key) is None:
            errors.say(f"{at}.{key}", "missing")
    return given


def checked(
    args: Mapping[str, Any], kind: type, errors: ArgumentErrors, at: str = ""
) -> dict[str, Any]:
    """The arguments of ``kind``, each held to its type and limit, or its default, at any depth.

    As `ArgumentErrors.checked_only`; arguments that may be outputs are there as well, as given.

    Args:
        args: what was given; whoever reads it refuses what ``kind`` doesn't have.
        kind: the TypedDict that states them.
        errors: gets what is refused.
        at: the path of what they are within; empty for a component's own.
    """
    before = f"{at}." if at else ""
    stated = arguments_of(kind)
    plain = {name: each for name, each in args.items() if not isinstance(each, pulumi.Output)}
    found = errors.checked_only(plain, kind, at=before)
    for name, argument in stated.items():
        if argument.late:
            found[name] = args.get(name)
        elif plain.get(name) is not None:
            found[name] = _within(f"{before}{name}", found[name], argument.type, errors)
    return found


def _within(at: str, value: Any, kind: Any, errors: ArgumentErrors) -> Any:
    """A checked value; where it is options, or has such, with these checked as well."""
    if is_typeddict(kind):
        return checked(options(at, value, kind, errors), kind, errors, at)
    named = get_origin(kind) is dict
    of = get_args(kind)[-1] if named or get_origin(kind) is list else None
    if not is_typeddict(of):
        return value
    if named:
        return {name: _within(f"{at}[{name!r}]", each, of, errors) for name, each in value.items()}
    return tuple(
        _within(f"{at}[{position}]", each, of, errors) for position, each in enumerate(value)
    )


def by_name(at: str, value: object, errors: ArgumentErrors) -> dict[str, Any]:
    """Objects by name; empty where it is none."""
    if isinstance(value, Mapping):
        return {str(key): each for key, each in cast("Mapping[object, Any]", value).items()}
    errors.add(at, value, "options by name")
    return {}


def object_name(at: str, value: object, errors: ArgumentErrors) -> str:
    """The name of an object of Kubernetes, as a label of DNS; empty where it was refused."""
    if isinstance(value, str) and _NAME.match(value):
        return value
    errors.add(at, value, "at most 63 of a-z, 0-9 and '-', not at either end")
    return ""


def amount(at: str, value: object, errors: ArgumentErrors, *, above: float = 0) -> float:
    """A finite number above a limit; the limit where it was refused."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and above < value < float("inf")
    ):
        return value
    errors.add(at, value, f"a number above {above:g}")
    return above


def number(argument: str, value: object, low: float, high: float, errors: ArgumentErrors) -> float:
    """A number between two limits; ``low`` where it was refused."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    ):
        return float(value)
    errors.add(argument, value, f"a number from {low:g} to {high:g}")
    return low


def cidr(at: str, value: object, errors: ArgumentErrors) -> Range | None:
    """A range of addresses; None where it was refused."""
    try:
        if isinstance(value, str) and "/" in value:
            return ipaddress.ip_network(value)
    except ValueError as error:
        errors.add(at, value, "a range such as 10.20.0.0/16", str(error))
        return None
    errors.add(at, value, "a range such as 10.20.0.0/16")
    return None


def is_private(range_: Range) -> bool:
    """Whether all addresses are of one's own networks."""
    return any(
        range_.version == each.version and range_.subnet_of(each)  # pyright: ignore[reportArgumentType]
        for each in PRIVATE
    )


def private_ranges(at: str, value: object, errors: ArgumentErrors) -> tuple[str, ...]:
    """At least one range of addresses of one's own networks; those that were refused, too."""
    ranges = errors.texts(at, value)
    if not ranges:
        errors.add(at, value, "at least one range")
    for position, each in enumerate(ranges):
        found = cidr(f"{at}[{position}]", each, errors)
        if found and not is_private(found):
            errors.add(
                f"{at}[{position}]", each, "private ranges",
                "it is within one's own networks: others neither reach it nor are reached",
            )  # fmt: skip
    return ranges


class OptionsChecker:
    """Checks the options of one argument, each by its path; absent ones are fine."""

    def __init__(self, at: str, given: Mapping[str, Any], errors: ArgumentErrors) -> None:
        """``at`` is the argument's path; ``errors`` gets what is wrong."""
        self._at = at
        self._errors = errors
        self.given = given

    def checked(self, kind: type) -> dict[str, Any]:
        """The options of ``kind``, each held to what its annotation says, or its default.

        As `checked` of this module: an option without a default that is left out is None.
        """
        return checked(self.given, kind, self._errors, self._at)

    def say(self, option: str, reason: str) -> None:
        """A problem with an option."""
        self._errors.say(f"{self._at}.{option}", reason)

    def needed(self, option: str, where: str) -> None:
        """Refuse the lack of an option; ``where`` says for what it is needed."""
        if self.given.get(option) is None:
            self.say(option, f"missing; needed {where}; or leave the add-on out with false")

    def foreign(self, option: str, distribution: str) -> None:
        """Refuse an option of other distributions, where it is given."""
        if self.given.get(option) is not None:
            self.say(option, f"has no meaning on {distribution}; leave it out")

    def nested(self, option: str, kind: type) -> OptionsChecker | None:
        """The checker of options within an option; None where there are none."""
        value = self.given.get(option)
        if value is None:
            return None
        at = f"{self._at}.{option}"
        return OptionsChecker(at, options(at, value, kind, self._errors), self._errors)

    def named(self, option: str, kind: type) -> dict[str, OptionsChecker]:
        """Checkers of options by name; none where absent."""
        if self.given.get(option) is None:
            return {}
        at = f"{self._at}.{option}"
        found = by_name(at, self.given[option], self._errors)
        return {
            name: OptionsChecker(
                f"{at}[{name!r}]",
                options(f"{at}[{name!r}]", each, kind, self._errors),
                self._errors,
            )
            for name, each in found.items()
        }

    def private_ranges(self, option: str) -> None:
        """Refuse what are no ranges of one's own networks, where they are given."""
        if self.given.get(option) is not None:
            private_ranges(f"{self._at}.{option}", self.given[option], self._errors)
