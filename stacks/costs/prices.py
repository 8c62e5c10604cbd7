"""Prices of one's own: a file that says what the catalogue doesn't know, or what was negotiated.

::

    rates:
      AED: {perUsd: 3.6725, date: 2026-09-01, source: the Central Bank's peg}
    prices:
      - type: aws:fsx/lustreFileSystem:LustreFileSystem
        meter: storage
        variant: [PERSISTENT_2, 250]
        place: aws/me-central-1
        price: 0.30
        unit: GiB-month
        date: 2026-09-01
        source: calculator, export of 1 September
      - machine: p5en.48xlarge
        capacity: capacity-block
        place: aws/me-central-1
        price: 150000
        currency: AED
        unit: month
        date: 2026-09-01
        source: offer 4711 of the account team

A price is for a type's meter (as `falaj` names it in its list of costs) or for a machine type. It
holds at one place, or at all where none is named.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from falaj.components import catalogue
from falaj.components.nearest import nearest
from falaj.policies.model import kind_of
from falaj.stacks.costs.amounts import Unit
from falaj.stacks.costs.billing import billed
from falaj.stacks.errors import StackError
from falaj.stacks.settings.section import Section
from falaj.wire.documents import is_mapping, is_sequence, mapping

# Reads a price file: its rows with the lines where they stand, each checked by itself.

_EXAMPLE: Final = (
    "prices: [{type: …, meter: …, price: …, unit: …, date: …, source: …}], as README.md of "
    "stacks/costs shows"
)
_WORDS: Final = {
    "extra_forbidden": "unknown key",
    "missing": "missing",
}
_DATE: Final = "a date as 2026-09-01"
#: Deeper than any price file is.
_DEEPEST: Final = 20
Source = Annotated[str, Field(min_length=3, max_length=500)]
#: Above any price that is paid for one unit, and still exact in decimal arithmetic.
Amount = Annotated[Decimal, Field(ge=0, le=10**12, allow_inf_nan=False)]


class PriceError(StackError):
    """A price file can't be read or used; one line for each problem, with its place."""


class Rate(Section):
    """What one US dollar costs in another currency."""

    per_usd: Annotated[Decimal, Field(gt=0, le=10**6, allow_inf_nan=False)]
    date: datetime.date
    source: Source


class Entry(Section):
    """One price."""

    type: Annotated[str, Field(pattern=r"^[^\s:]+(:[^\s:]+){1,2}$")] = ""
    meter: str = ""
    machine: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+$")] = ""
    capacity: Literal["", "on-demand", "spot", "reservation", "capacity-block"] = ""
    variant: list[str] = Field(default_factory=list)
    place: Annotated[str, Field(pattern=r"^([a-z-]+/[a-z0-9-]+|global)$")] = ""
    price: Amount
    per: Annotated[Decimal, Field(gt=0, le=10**12, allow_inf_nan=False)] = Decimal(1)
    """How many units the price is for, as 10000 requests."""
    unit: Annotated[str, Field(min_length=1, max_length=40)]
    currency: Literal["USD", "AED"] = "USD"
    date: datetime.date
    source: Source
    negotiated: bool = False
    expected: Amount | None = None

    @field_validator("variant", mode="before")
    @classmethod
    def _as_list(cls, value: Any) -> Any:
        given = value if is_sequence(value) else [value]
        return [str(each).lower() if isinstance(each, bool) else each for each in given]

    @model_validator(mode="after")
    def _names_one_thing(self) -> Entry:
        if bool(self.type) == bool(self.machine):
            raise ValueError(
                "type and machine: given "
                + ("both" if self.type else "neither")
                + "; allowed: exactly one of them, as type: aws:ec2/natGateway:NatGateway or "
                "machine: p5en.48xlarge"
            )
        for key in ("meter", "variant", "expected") if self.machine else ("capacity",):
            if getattr(self, key):
                other = "machine" if self.machine else "type"
                raise ValueError(f"{key}: not allowed for a price of a {other}; leave it out")
        return self


@dataclass(frozen=True)
class Read:
    """What a file says."""

    entries: tuple[tuple[str, Entry], ...] = ()
    """Each with ``FILE:LINE``."""
    rates: Mapping[str, Rate] = field(default_factory=dict[str, Rate])


@dataclass
class _Lines:
    """Lines of a document by the path of what stands there."""

    path: Path
    lines: dict[tuple[str | int, ...], int]

    def at(self, *where: str | int) -> str:
        """``FILE:LINE`` of the nearest thing that is there."""
        key = where
        while key and key not in self.lines:
            key = key[:-1]
        return f"{self.path}:{self.lines.get(key, 1)}"


def read(path: Path) -> Read:
    """The rows of a file.

    Raises:
        PriceError: it can't be read, isn't a price file, or has rows that can't be used.
    """
    document, lines = _document(path)
    if not isinstance(document, Mapping):
        raise PriceError(f"{lines.at()}: expected a mapping with {_EXAMPLE}")
    given = cast("Mapping[Any, Any]", document)
    problems = [
        f"{lines.at(str(key))}: {key}: unknown key; allowed: prices, rates"
        for key in given
        if key not in ("prices", "rates")
    ]
    rows: Any = given.get("prices")
    rates: Any = given.get("rates") or {}
    if not is_sequence(rows):
        problems.append(f"{lines.at('prices')}: prices: expected a list: {_EXAMPLE}")
        rows = []
    if not is_mapping(rates):
        problems.append(f"{lines.at('rates')}: rates: expected a mapping by currency")
        rates = {}
    entries: list[tuple[str, Entry]] = []
    for number, row in enumerate(rows):
        try:
            entries.append((lines.at("prices", number), Entry.model_validate(row)))
        except ValidationError as error:
            problems += _problems(error, lines, ("prices", number), Entry)
    found: dict[str, Rate] = {}
    for currency, row in cast("Mapping[Any, Any]", rates).items():
        where = ("rates", str(currency))
        if currency != "AED":
            problems.append(f"{lines.at(*where)}: rates: given {currency!r}; allowed: AED")
            continue
        try:
            found[str(currency)] = Rate.model_validate(row)
        except ValidationError as error:
            problems += _problems(error, lines, where, Rate)
    if problems:
        raise PriceError("\n".join(problems))
    return Read(tuple(entries), found)


def _document(path: Path) -> tuple[Any, _Lines]:
    lines = _Lines(path, {})
    try:
        text = path.read_text(encoding="utf-8-sig")
        loader = yaml.SafeLoader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None, lines
            doubles = list(_walk(root, (), lines.lines))
            document: Any = loader.construct_document(root)  # pyright: ignore[reportUnknownMemberType]
        finally:
            loader.dispose()
    except FileNotFoundError:
        raise PriceError(f"{path}: there is no such file; expected one with {_EXAMPLE}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else 1
        raise PriceError(f"{path}:{line}: no YAML: {error.problem or error.context}") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise PriceError(f"{path}:1: the file can't be read: {reason}") from None
    if doubles:
        raise PriceError("\n".join(f"{path}:{line}: {key}: given twice" for key, line in doubles))
    return document, lines


def _walk(
    node: yaml.Node, where: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int]
) -> Iterator[tuple[str, int]]:
    """Note the line of everything; yields keys that stand twice in one mapping."""
    lines.setdefault(where, node.start_mark.line + 1)
    if len(where) > _DEEPEST:
        raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in seen:
                yield name, line
            seen.add(name)
            lines[*where, name] = line
            yield from _walk(value, (*where, name), lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*where, index), lines)


def _problems(
    error: ValidationError, lines: _Lines, where: tuple[str | int, ...], model: type[Section]
) -> Iterator[str]:
    for each in error.errors():
        inner = tuple(part for part in each["loc"] if part != "[key]")
        name = ".".join(str(part) for part in inner)
        at = lines.at(*where, *inner)
        kind = each["type"]
        keys = [field.alias or name for name, field in model.model_fields.items()]
        if kind == "extra_forbidden":
            close = nearest(inner[-1], keys)
            hint = f"; did you mean {close[0]}?" if close else ""
            yield f"{at}: {name}: unknown key{hint}; allowed: {', '.join(keys)}"
        elif kind == "missing":
            yield f"{at}: {name}: missing"
        elif kind == "value_error":
            yield f"{at}: {(each.get('ctx') or {}).get('error')}"
        elif not inner:
            yield f"{at}: expected a mapping with {', '.join(keys)}"
        else:
            yield f"{at}: {name}: given {_shown(each['input'])}; allowed: {_allowed(each, model)}"


def _shown(value: Any) -> str:
    text = repr(str(value)) if isinstance(value, Decimal) else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _allowed(problem: Any, model: type[Section]) -> str:
    context = mapping(problem.get("ctx"))
    kind = problem["type"]
    if kind == "wrong_type" or kind.startswith("bool"):
        schema = _property_schema(model, problem["loc"][-1])
        return _DATE if schema.get("format") == "date" else _allowed_values(schema)
    if "expected" in context:
        return str(context["expected"]).replace("'', ", "")
    if "pattern" in context:
        return f"text that matches {context['pattern']}"
    if kind.startswith(("decimal", "greater", "less", "finite", "is_instance")):
        return "a number, 0 or more" if "gt" not in context else "a number above 0"
    if kind.startswith("date"):
        return _DATE
    return str(problem["msg"]).lower()


def _property_schema(section: type[Section], key: int | str) -> dict[str, Any]:
    """The JSON schema of one key, without the branch that stands for an absent value."""
    schema: dict[str, Any] = section.model_json_schema()["properties"].get(key, {})
    branches = cast("list[dict[str, Any]]", schema.get("anyOf", []))
    return next((branch for branch in branches if branch.get("type") != "null"), schema)


def _allowed_values(schema: dict[str, Any]) -> str:
    """What a key accepts, in words: its type and its limits."""
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    types = {
        "integer": "a whole number",
        "number": "a number",
        "boolean": "true or false",
        "string": "text",
        "array": "a list",
    }
    text = types.get(str(schema.get("type")), "a section of keys")
    low = schema.get("minimum", schema.get("exclusiveMinimum"))
    high = schema.get("maximum", schema.get("exclusiveMaximum"))
    if low is not None and high is not None:
        bound = "above" if "exclusiveMinimum" in schema else "from"
        text += f" {bound} {low} {'up to' if bound == 'above' else 'to'} {high}"
    if "pattern" in schema:
        text += f" that matches {schema['pattern']}"
    return text


__all__ = ["NO_PRICES", "Price", "PriceError", "Prices", "read_prices"]

_MACHINE_UNITS: Final = "hour"


@dataclass(frozen=True)
class Price:
    """What one unit costs."""

    usd: Decimal
    unit: Unit
    source: str
    """Who says so, in words."""
    as_of: str
    """The day of which the price is, or a range of days."""
    is_own: bool = False
    """Whether it is from a price file, not the catalogue."""


@dataclass(frozen=True)
class OwnPrice:
    """An entry of a price file."""

    price: Price
    at: str
    """``FILE:LINE``."""
    type: str = ""
    meter: str = ""
    machine: str = ""
    capacity: str = ""
    variant: frozenset[str] = frozenset()
    place: str = ""
    negotiated: bool = False
    expected: Decimal | None = None
    """Units that each such resource uses in a month, where only its use decides."""


@dataclass(frozen=True)
class Prices:
    """Prices of one's own; none in the beginning."""

    own: tuple[OwnPrice, ...] = ()

    def of_machine(self, machine: str, capacity: str, places: Iterable[str]) -> OwnPrice | None:
        """The price of a machine type, bought so, at one of these places."""
        found = [
            each
            for each in self.own
            if each.machine.lower() == machine.lower()
            and each.machine
            and each.capacity == capacity
            and each.place in {"", *places}
        ]
        return _most_exact(found)

    def of_meter(
        self, kind: str, meter: str, variant: Iterable[str], places: Iterable[str]
    ) -> OwnPrice | None:
        """The price of a type's meter at one of these places.

        Args:
            kind: the type in its one spelling.
            meter: its name; empty for types that no table knows.
            variant: what else the price depends on, as far as it can be seen.
            places: where it is; more exact entries win over more general ones.

        Raises:
            PriceError: two entries are as exact as each other.
        """
        seen = {each.lower() for each in variant}
        found = [
            each
            for each in self.own
            if each.type == kind
            and each.meter in {"", meter}
            and each.variant <= seen
            and each.place in {"", *places}
        ]
        return _most_exact(found)


NO_PRICES: Final = Prices()


def _most_exact(found: list[OwnPrice]) -> OwnPrice | None:
    def rank(each: OwnPrice) -> tuple[int, bool, bool]:
        return len(each.variant), bool(each.place), bool(each.meter)

    best = [each for each in found if rank(each) == max(map(rank, found))]
    if len(best) > 1:
        raise PriceError(
            f"{best[0].at} and {best[1].at} both give a price for the same "
            f"{best[0].machine or best[0].meter or best[0].type}\n"
            "  name what tells them apart (variant, meter, place), or remove one"
        )
    return best[0] if best else None


def read_prices(path: Path) -> Prices:
    """The prices of a file.

    Args:
        path: the file.

    Raises:
        PriceError: it can't be read, or an entry can't be used; each problem is named with its
            line, what was given and what is allowed.
    """
    given = read(path)
    problems: list[str] = []
    own: list[OwnPrice] = []
    for at, entry in given.entries:
        try:
            own.append(_own(entry, at, given))
        except ValueError as error:
            problems.append(f"{at}: {error}")
    problems += _doubles(own)
    if problems:
        raise PriceError("\n".join(problems))
    return Prices(tuple(own))


def _own(entry: Entry, at: str, given: Read) -> OwnPrice:
    """One entry, checked against what is billed. Raises ValueError with what is wrong."""
    unit = Unit.of(entry.unit)
    usd = entry.price / entry.per
    source = entry.source
    if entry.currency != "USD":
        rate = given.rates.get(entry.currency)
        if rate is None:
            raise ValueError(
                f"currency: given {entry.currency}, and the file states no rate for it; allowed: "
                f"USD, or {entry.currency} with rates: {{{entry.currency}: {{perUsd: …, date: …, "
                "source: …}}"
            )
        usd /= rate.per_usd
        source = f"{source}; {rate.per_usd} {entry.currency} a US dollar ({rate.source})"
    price = Price(usd, unit, source, entry.date.isoformat(), is_own=True)
    found = OwnPrice(
        price, at, kind_of(entry.type) if entry.type else "", entry.meter, entry.machine,
        entry.capacity or ("on-demand" if entry.machine else ""),
        frozenset(each.lower() for each in entry.variant), entry.place, entry.negotiated,
        entry.expected,
    )  # fmt: skip
    if entry.machine:
        _check_machine(found)
    else:
        _check_meter(found)
    return found


def _check_machine(own: OwnPrice) -> None:
    if not Unit.of(_MACHINE_UNITS).converts_from(own.price.unit):
        raise ValueError(
            f"unit: given {own.price.unit}; allowed for a machine: a time, such as hour or month"
        )
    if own.negotiated or own.capacity != "on-demand":
        return
    for place in catalogue.all_places():
        if own.place not in {"", place.name}:
            continue
        listed = next((each for each in place.machines() if each.name == own.machine), None)
        if listed is not None and listed.usd_per_hour is not None:
            raise ValueError(
                f"{own.machine} has a list price at {place.name}: USD {listed.usd_per_hour} an "
                "hour; say negotiated: true to use this price instead, or remove it"
            )


def _check_meter(own: OwnPrice) -> None:
    known = billed(own.type)
    if known is None:
        if own.meter:
            raise ValueError(
                f"meter: given {own.meter!r}, and no table knows what {own.type} is billed by; "
                "leave it out, and give a price for the whole resource"
            )
        if not own.price.unit.period or own.price.unit.thing:
            raise ValueError(
                f"unit: given {own.price.unit}; allowed for a type that no table knows: a time, "
                "such as hour or month, for each resource"
            )
        return
    names = list(dict.fromkeys(each.name for each in known.meters if each.amount != "machines"))
    if known.meters and not names:
        raise ValueError(
            f"type: {own.type} is billed by its machines; give their prices with machine: instead"
        )
    if not names:
        raise ValueError(f"{own.type} costs nothing by itself ({known.source})")
    if not own.meter and len(names) > 1:
        raise ValueError(f"meter: missing; {own.type} is billed by: {', '.join(names)}")
    if own.meter and own.meter not in names:
        raise ValueError(f"meter: given {own.meter!r}; allowed: {', '.join(names)}")
    rows = [each for each in known.meters if own.meter in {"", each.name}]
    if own.expected is not None and not any(each.amount == "use" for each in rows):
        raise ValueError(
            f"expected: {own.type} says itself how much of its {rows[0].name} there is; leave it "
            "out"
        )
    units = [each.unit for each in rows]
    if not any(each.converts_from(own.price.unit) for each in units):
        allowed = ", ".join(dict.fromkeys(map(str, units)))
        raise ValueError(f"unit: given {own.price.unit}; allowed: {allowed}")


def _doubles(own: list[OwnPrice]) -> list[str]:
    seen: dict[tuple[object, ...], str] = {}
    problems: list[str] = []
    for each in own:
        key = (
            each.type,
            each.meter,
            each.machine.lower(),
            each.capacity,
            each.variant,
            each.place,
        )
        if key in seen:
            problems.append(f"{each.at}: {seen[key]} has a price for the same already")
        seen.setdefault(key, each.at)
    return problems
