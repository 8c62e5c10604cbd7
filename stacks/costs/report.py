"""A stack's costs and their totals: as text, one sentence, plain data, a price file to fill in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import yaml

from falaj.components.catalogue.cost import HOURS_PER_MONTH
from falaj.components.catalogue.tag_names import tag_names
from falaj.policies.model import Resource, is_unknown, text
from falaj.policies.reading.tags import tags_of
from falaj.stacks.costs.amounts import Amount
from falaj.stacks.costs.pricing import Line
from falaj.stacks.lettering import clean, columns, isolated, wrap

#: Names of resources that are written out in the one sentence; the text has all of them.
_MOST_NAMED: Final = 2
_CENT: Final = Decimal("0.01")
#: Columns of the two amounts beside each line.
_HOURLY, _MONTHLY = 21, 19
#: Below this many columns amounts stand on lines of their own.
_NARROW: Final = 72
_NO_PRICE: Final = (
    "Without taxes, support, traffic to other places and commitments that no price file states. "
    f"A month has {HOURS_PER_MONTH} hours."
)
#: Tags and labels that say who pays, the first that is there.
COST_CENTER: Final = (
    *tag_names("cost-center"),
    "falaj.io/cost-center",
    "cost-center",
    "costCenter",
)


@dataclass(frozen=True)
class Unclassified:
    """A resource of a type that no table knows, and for which no price file has a price."""

    resource: Resource

    @property
    def type(self) -> str:
        """Its type, as the engine writes it."""
        return self.resource.type


@dataclass(frozen=True)
class Total:
    """Sums of what is known, in US dollars an hour."""

    least: Decimal
    most: Decimal

    @property
    def monthly_least(self) -> Decimal:
        """At least, for a month of 730 hours."""
        return self.least * HOURS_PER_MONTH

    @property
    def monthly_most(self) -> Decimal:
        """At most, for a month of 730 hours."""
        return self.most * HOURS_PER_MONTH


@dataclass(frozen=True)
class Costs:
    """What a stack costs."""

    name: str
    """Of the stack; empty where nobody says."""
    place: str
    lines: tuple[Line, ...]
    """Every charge, in the order of its resource's URN."""
    unclassified: tuple[Unclassified, ...]
    """Resources of which nobody knows whether they cost."""
    free: int
    """How many resources cost nothing by themselves."""
    runs_on_machines_of_others: bool = False
    """Whether it has objects of a cluster whose machines another stack, or nobody here, has."""

    @property
    def total(self) -> Total:
        """The sum of every line whose price and amount are known, at its least and its most."""
        return total_of(self.lines)

    @property
    def unknown(self) -> tuple[Line, ...]:
        """Lines that have no price or no amount, so that no total has them whole."""
        return tuple(
            each
            for each in self.lines
            if not each.is_by_use and (each.least is None or each.most is None)
        )

    @property
    def by_use(self) -> tuple[Line, ...]:
        """Lines that only use decides, for which nobody said how much is expected."""
        return tuple(each for each in self.lines if each.is_by_use)

    def by_cost_center(self) -> dict[str, Total]:
        """Totals by the tag that says who pays (`COST_CENTER`); empty text: none says."""
        found: dict[str, list[Line]] = {}
        for each in self.lines:
            found.setdefault(cost_center(each.charge.resource), []).append(each)
        return {name: total_of(found[name]) for name in sorted(found)}

    def summary(self) -> str:
        """The total in one sentence, with the name of everything that it lacks."""
        return summary(self)

    def as_text(self, width: int = 80) -> str:
        """Lines and total for a terminal of so many columns (40 at least)."""
        return as_text(self, max(width, 40))

    def as_json(self) -> dict[str, Any]:
        """The same as plain data; amounts of money are texts, so that nothing is rounded."""
        return as_json(self)

    def as_price_file(self) -> str:
        """A price file (YAML) with a row for each price that is unknown, to be filled in."""
        return as_price_file(self)


def total_of(lines: Iterable[Line]) -> Total:
    """The sum of what is known of lines."""
    known = [each for each in lines if not each.is_by_use]
    return Total(
        sum((each.least for each in known if each.least is not None), Decimal(0)),
        sum((each.most for each in known if each.most is not None), Decimal(0)),
    )


def cost_center(resource: Resource) -> str:
    """Who pays for a resource, as its tags or labels say; empty where they don't."""
    tags: Mapping[str, Any] = tags_of(resource) or {}
    found = {**resource.tags, **tags}
    for key in COST_CENTER:
        value = found.get(key)
        if not is_unknown(value) and text(value):
            return text(value)
    return ""


@dataclass(frozen=True)
class Group:
    """Lines of the same thing, of several resources."""

    label: str
    lines: tuple[Line, ...]

    @property
    def names(self) -> list[str]:
        """Names of the resources, each once."""
        return sorted({clean(each.charge.resource.name) for each in self.lines})

    @property
    def most(self) -> Decimal:
        """US dollars an hour at most, as far as they are known."""
        return sum((each.most for each in self.lines if each.most is not None), Decimal(0))

    @property
    def cost(self) -> str:
        """Dollars an hour and a month, in words."""
        if any(each.why_unknown for each in self.lines):
            return "price unknown"
        least = sum((each.least for each in self.lines if each.least is not None), Decimal(0))
        hourly, monthly = _span(least, self.most, money), _span(least, self.most, _month)
        return f"USD {hourly} per hour, {monthly} per month"

    @property
    def amount(self) -> str:
        """How much of it there is, in words; empty where only its use decides."""
        first = self.lines[0]
        if first.expected is not None:
            total = sum((each.expected or Decimal(0) for each in self.lines), Decimal(0))
            return f"{_plain(total)} {first.prices[0].unit} expected a month"
        if first.is_by_use:
            return ""
        least = _sum([each.charge.amount.least for each in self.lines])
        most = _sum([each.charge.amount.most for each in self.lines])
        thing = first.charge.unit.thing
        text = _ends(least, most)
        return f"{text} {thing}" if thing and text[-1].isdigit() else text

    def description(self, most: int | None = None) -> str:
        """How much of what, and of which resources.

        Args:
            most: how many resources are named; where there are more, none is. Default: all are.
        """
        charge, amount = self.lines[0].charge, self.amount
        if charge.machines and amount:
            text = f"{amount} {self.label}"
        elif charge.unit.thing or self.lines[0].expected is not None:
            text = f"{self.label}, {amount}" if amount else self.label
        else:
            times = "\N{MULTIPLICATION SIGN}"
            text = f"{amount} {times} {self.label}" if amount not in {"", "1"} else self.label
        shown = self.names if most is None or len(self.names) <= most else []
        return f"{text}: {', '.join(map(isolated, shown))}" if shown else text


def _sum(ends: Sequence[Decimal | None]) -> Decimal | None:
    return (
        sum((each for each in ends if each is not None), Decimal(0)) if None not in ends else None
    )


def _ends(least: Decimal | None, most: Decimal | None) -> str:
    if least is None and most is None:
        return "an unknown number"
    if least is None:
        return f"at most {_plain(most or Decimal(0))}"
    if most is None:
        return f"{_plain(least)} or more"
    return _plain(most) if least == most else f"{_plain(least)} to {_plain(most)}"


def span_of(amount: Amount) -> str:
    """An amount from its least to its most, in words."""
    return _ends(amount.least, amount.most)


def _plain(value: Decimal) -> str:
    rounded = value.quantize(_CENT, ROUND_HALF_UP)
    whole = rounded.to_integral_value()
    return f"{whole:,f}" if whole == rounded else f"{rounded.normalize():,f}"


def money(value: Decimal) -> str:
    """US dollars with two digits after the point, or with what a small price needs."""
    if value and abs(value) < _CENT:
        return f"{value:,.5f}"
    return f"{value:,.2f}"


def _month(value: Decimal) -> str:
    monthly = value * HOURS_PER_MONTH
    return f"{monthly:,.2f}" if monthly and monthly < 1 else f"{monthly:,.0f}"


def _label(line: Line) -> str:
    charge = line.charge
    if charge.machines:
        sorts = " or ".join(charge.machines)
        bought = (
            "" if charge.capacity == "on-demand" else f", {charge.capacity or 'bought unseen'}"
        )
        return f"{sorts}{bought} ({charge.service} {charge.meter})"
    variant = f" ({', '.join(charge.variant)})" if charge.variant else ""
    return f"{charge.service} {charge.meter}{variant}"


def groups(lines: Iterable[Line]) -> list[Group]:
    """Lines by what they are for, the dearest first; machines of each resource by themselves."""
    found: dict[tuple[object, ...], list[Line]] = {}
    for each in lines:
        charge = each.charge
        alone = charge.resource.urn if charge.is_machines else ""
        key = (_label(each), charge.unit, charge.note, each.is_by_use, alone, each.prices)
        found.setdefault(key, []).append(each)
    made = [Group(clean(_label(each[0])), tuple(each)) for each in found.values()]
    return sorted(made, key=lambda each: (-each.most, each.label, each.names))


def sums(total: Total) -> str:
    """Both ends of a total, as the beginning of a sentence."""
    least = f"USD {money(total.least)} per hour ({_month(total.least)} per month)"
    if total.least == total.most:
        return least
    most = f"USD {money(total.most)} per hour ({_month(total.most)} per month)"
    return f"at least {least}, at most {most}"


def summary(costs: Costs) -> str:
    """The total in a few sentences, with the name of everything that it lacks."""
    unknown, by_use = groups(costs.unknown), groups(costs.by_use)
    text = sums(costs.total)
    if (unknown or by_use) and not text.startswith("at least"):
        text = f"at least {text}"
    if unknown:
        noun = "price that is" if len(unknown) == 1 else "prices that are"
        text += f", plus {len(unknown)} {noun} unknown: {_named(unknown)}"
    if by_use:
        text += f". Charged by use: {_named(by_use)}"
    if costs.unclassified:
        kinds = dict.fromkeys(clean(each.type) for each in costs.unclassified)
        text += f". Not known whether they cost: {'; '.join(kinds)}"
    if costs.runs_on_machines_of_others:
        text += ". Its pods run on the cluster's machines, which aren't in this stack"
    return text


def _named(found: Sequence[Group]) -> str:
    return "; ".join(each.description(_MOST_NAMED) for each in found)


def labels(lines: Iterable[Line]) -> list[str]:
    """What lines are for, each once, the dearest first: no amounts and no resources."""
    return list(dict.fromkeys(each.label for each in groups(lines)))


def as_text(costs: Costs, width: int) -> str:
    """Lines and total for a terminal."""
    where = f" at {clean(costs.place)}" if costs.place else ""
    title = f"Costs of stack {clean(costs.name)}{where}" if costs.name else f"Costs{where}"
    unknown = costs.unknown
    known = [each for each in costs.lines if not each.is_by_use and each not in unknown]
    lines = wrap(title, width)
    lines += _known(groups(known), width)
    lines += _listed("Prices that are unknown", groups(unknown), width)
    lines += _listed("Charged by use", groups(costs.by_use), width)
    lines += _unclassified(costs, width)
    lines += ["", *wrap(f"{costs.free} resources cost nothing by themselves.", width)]
    lines += wrap(_NO_PRICE, width)
    lines += [*_sources(known, width), ""]
    lines += wrap(f"Total: {summary(costs)}.", width)
    return "\n".join(lines) + "\n"


def _known(found: Sequence[Group], width: int) -> Iterator[str]:
    if not found:
        return
    wide = width >= _NARROW
    yield ""
    heading = "With a price"
    room = width - _HOURLY - _MONTHLY
    if wide:
        yield f"{heading:<{room}}{'USD per hour':>{_HOURLY}}{'USD per month':>{_MONTHLY}}"
    else:
        yield heading
    for each in found:
        least = sum((one.least or Decimal(0) for one in each.lines), Decimal(0))
        most = sum((one.most or Decimal(0) for one in each.lines), Decimal(0))
        hourly, monthly = _span(least, most, money), _span(least, most, _month)
        if not wide:
            yield from wrap(each.description(), width, "  ", "    ")
            yield from wrap(each.cost, width, "    ")
            continue
        text = wrap(each.description(), room - 1, "  ", "    ")
        gap = room - columns(text[0])
        yield f"{text[0]}{' ' * gap}{hourly:>{_HOURLY}}{monthly:>{_MONTHLY}}"
        yield from text[1:]


def _span(least: Decimal, most: Decimal, shown: Any) -> str:
    return shown(most) if least == most else f"{shown(least)} to {shown(most)}"


def _listed(title: str, found: Sequence[Group], width: int) -> Iterator[str]:
    if not found:
        return
    yield ""
    yield f"{title} ({len(found)})"
    for each in found:
        price = each.lines[0].prices
        unit_price = f"; USD {_exact(price[0].usd)} per {price[0].unit}" if price else ""
        note = each.lines[0].charge.note or ""
        why = f"; {clean(note)}" if note else ""
        yield from wrap(f"{each.description()}{unit_price}{why}", width, "  ", "    ")


def _exact(value: Decimal) -> str:
    return f"{value.normalize():f}" if value else "0"


def _unclassified(costs: Costs, width: int) -> Iterator[str]:
    if not costs.unclassified:
        return
    found: dict[str, list[str]] = {}
    for each in costs.unclassified:
        found.setdefault(clean(each.type), []).append(clean(each.resource.name))
    yield ""
    yield f"Not known whether they cost ({len(found)})"
    for kind, names in found.items():
        yield from wrap(
            f"{kind}: {', '.join(isolated(one) for one in names)}", width, "  ", "    "
        )


def _sources(lines: Iterable[Line], width: int) -> Iterator[str]:
    sources = dict.fromkeys(
        f"{price.source}, {price.as_of}" for each in lines for price in each.prices
    )
    for each in sources:
        yield from wrap(f"Prices: {clean(each)}.", width)


def as_json(costs: Costs) -> dict[str, Any]:
    """Costs as plain data; money as texts."""
    total = costs.total
    return {
        "stack": costs.name,
        "place": costs.place,
        "currency": "USD",
        "hoursPerMonth": HOURS_PER_MONTH,
        "total": _total(total),
        "byCostCenter": {name: _total(each) for name, each in costs.by_cost_center().items()},
        "unknownPrices": len(groups(costs.unknown)),
        "free": costs.free,
        "lines": [_line(each) for each in costs.lines],
        "notKnownToCost": [
            {"urn": each.resource.urn, "type": each.type, "name": each.resource.name}
            for each in costs.unclassified
        ],
        "summary": summary(costs),
    }


def _total(total: Total) -> dict[str, dict[str, str]]:
    return {
        "perHour": {"least": _exact(total.least), "most": _exact(total.most)},
        "perMonth": {"least": _exact(total.monthly_least), "most": _exact(total.monthly_most)},
    }


def _line(line: Line) -> dict[str, Any]:
    charge = line.charge
    amount = charge.amount
    return {
        "urn": charge.resource.urn,
        "type": charge.resource.type,
        "name": charge.resource.name,
        "place": line.place,
        "service": charge.service,
        "meter": charge.meter,
        "unit": str(charge.unit),
        "variant": list(charge.variant),
        "machines": list(charge.machines),
        "capacity": charge.capacity,
        "amount": {"least": _or_none(amount.least), "most": _or_none(amount.most)},
        "byUse": amount.is_by_use,
        "expectedPerMonth": _or_none(line.expected),
        "perHour": {"least": _or_none(line.least), "most": _or_none(line.most)},
        "prices": [
            {
                "usd": _exact(each.usd),
                "unit": str(each.unit),
                "asOf": each.as_of,
                "source": each.source,
                "own": each.is_own,
            }
            for each in line.prices
        ],
        "unknown": line.why_unknown or None,
        "note": charge.note or None,
    }


def _or_none(value: Decimal | None) -> str | None:
    return None if value is None else _exact(value)


def as_price_file(costs: Costs) -> str:
    """A price file with a row for each unknown price; `price`, `date` and `source` are empty."""
    rows: list[dict[str, Any]] = []
    for each in (*groups(costs.unknown), *groups(costs.by_use)):
        charge, place = each.lines[0].charge, each.lines[0].place
        where = {"place": place} if place else {}
        empty: dict[str, Any] = {"price": None, "date": None, "source": None}
        if charge.is_machines:
            rows += [
                {"machine": name, "capacity": charge.capacity, **where, "unit": "hour", **empty}
                for name in charge.machines
            ]
        elif not each.lines[0].prices:
            variant = {"variant": list(charge.variant)} if charge.variant else {}
            kinds = dict.fromkeys(one.charge.priced_as for one in each.lines)
            rows += [
                {
                    "type": kind,
                    "meter": charge.meter,
                    **variant,
                    **where,
                    "unit": str(charge.unit),
                    **empty,
                }
                for kind in kinds
            ]
    for each in dict.fromkeys(one.resource.kind for one in costs.unclassified):
        rows.append({"type": each, "unit": "month", "price": None, "date": None, "source": None})
    distinct = [row for number, row in enumerate(rows) if row not in rows[:number]]
    heading = (
        "# Prices that are unknown: fill in price, date and source; remove what isn't needed.\n"
    )
    body = yaml.safe_dump({"prices": distinct}, sort_keys=False, allow_unicode=True)
    return heading + body
