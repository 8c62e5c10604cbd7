"""What resources are billed by: the tables, and what they say of one resource."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import yaml

from falaj.policies.model import ABSENT, Resource, get, is_unknown, items
from falaj.policies.reading.kubernetes import manifests
from falaj.policies.reading.types import azure
from falaj.stacks.costs.amounts import Amount, Unit, by_use, known, measure

_TABLES: Final = Path(__file__).parent / "tables"
_GIVEN: Final = "*"
#: Amounts that a module of Python reads, of machines and of other things.
READ: Final = ("machines", "read")


@dataclass(frozen=True)
class Meter:
    """One thing that a service bills a type for: a row of a table (README.md)."""

    name: str
    unit: Unit
    amount: Any
    variant: tuple[str, ...] = ()
    when: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    unless: Mapping[str, tuple[Any, ...]] = field(default_factory=dict[str, tuple[Any, ...]])
    within: str = ""


@dataclass(frozen=True)
class Billed:
    """What the tables say of a type."""

    service: str
    source: str
    """The vendor's page."""
    meters: tuple[Meter, ...]
    """Empty where the type costs nothing by itself."""


@dataclass(frozen=True)
class Charge:
    """Something that a resource is billed for, before anybody knows its price."""

    resource: Resource
    service: str
    meter: str
    unit: Unit
    amount: Amount
    variant: tuple[str, ...] = ()
    """What the price depends on besides, as far as it can be seen."""
    machines: tuple[str, ...] = ()
    """Machine types, of which each machine is one; empty where no machine is charged."""
    capacity: str = ""
    """Of machines: how they are bought, as the catalogue calls it; empty where unseen."""
    kind: str = ""
    """The type whose price it has, where that isn't the resource's own: a machine's disks are
    billed as volumes."""
    has_list_price: bool = True
    """Of machines: whether a list price is for them. Those are for Linux on shared hosts."""
    note: str = ""

    @property
    def priced_as(self) -> str:
        """The type, in its one spelling, by which price files name it."""
        return self.kind or self.resource.kind

    @property
    def is_machines(self) -> bool:
        """Whether it is for machines, which have prices by machine type."""
        return bool(self.machines or self.capacity)


@functools.cache
def table() -> Mapping[str, Billed]:
    """What is billed, by type in its one spelling; packages and modules end in ``*``."""
    found: dict[str, Billed] = {}
    for package, expand in _EXPAND.items():
        text = (_TABLES / f"{package}.yaml").read_text(encoding="utf-8")
        rows: Any = yaml.load(text, yaml.CSafeLoader)
        for group in rows:
            service, source = group["service"], group["source"]
            charged: dict[str, Any] = group.get("charged") or {}
            free: list[str] = group.get("free") or []
            for name, meters in charged.items():
                billed = Billed(service, source, tuple(_meters(meters)))
                found.update(dict.fromkeys(expand(name), billed))
            for name in free:
                found.update(dict.fromkeys(expand(name), Billed(service, source, ())))
    return found


def _aws(name: str) -> Iterable[str]:
    last = name.rpartition("/")[2]
    return [f"aws:{name}" if last == _GIVEN else f"aws:{name}:{last[0].upper()}{last[1:]}"]


def _azure(name: str) -> Iterable[str]:
    return azure(name)


def _kubernetes(name: str) -> Iterable[str]:
    return [f"kubernetes:{name}"]


def _others(name: str) -> Iterable[str]:
    return [name]


_EXPAND: Final = {
    "aws": _aws,
    "azure": _azure,
    "kubernetes": _kubernetes,
    "others": _others,
}


def _meters(given: Any) -> Iterator[Meter]:
    if isinstance(given, Mapping):
        for name, unit in cast("Mapping[str, str]", given).items():
            yield Meter(name, Unit.of(unit), "use")
        return
    for row in given:
        unit = Unit.of(row["unit"])
        yield Meter(
            row["meter"],
            unit,
            row.get("amount", 1 if unit.period else "use"),
            tuple(map(str, items(row.get("variant")))),
            _conditions(row.get("when")),
            _conditions(row.get("unless")),
            row.get("within", ""),
        )


def _conditions(given: Mapping[str, Any] | None) -> dict[str, tuple[Any, ...]]:
    return {path: tuple(values) for path, values in (given or {}).items()}


def billed(kind: str) -> Billed | None:
    """What is known of a type, in its one spelling: None where no table has it."""
    package, _, rest = kind.partition(":")
    module = rest.rpartition(":")[0].partition("/")[0]
    every = (f"{package}:{module}/{_GIVEN}", f"{package}:{module}:{_GIVEN}", f"{package}:{_GIVEN}")
    found = table()
    return next((found[name] for name in (kind, *every) if name in found), None)


def charges(resource: Resource) -> Iterator[Charge] | None:
    """What the tables charge a resource for; None where they don't know its type."""
    if resource.package != "kubernetes":
        found = billed(resource.kind)
        return None if found is None else _charged(resource, found, resource.properties)
    objects = [each for each in manifests(resource) if not each.is_patch]
    kinds = [(each, billed(f"kubernetes:{each.group or 'core'}:{each.kind}")) for each in objects]
    if not objects:
        group, _, kind = resource.kind.removeprefix("kubernetes:").rpartition(":")
        kind = kind.removesuffix("Patch")
        found = billed(f"kubernetes:{group.partition('/')[0]}:{kind}")
        return None if found is None else iter(())
    if any(found is None for _, found in kinds):
        return None
    return (
        charge
        for each, found in kinds
        if found is not None
        for charge in _charged(resource, found, each.body)
    )


def _charged(resource: Resource, found: Billed, properties: Mapping[str, Any]) -> Iterator[Charge]:
    for meter in found.meters:
        if meter.amount in READ:
            continue
        if not meter.within:
            blocks: list[Any] = [properties]
        else:
            given = get(properties, meter.within)
            blocks = [given] if is_unknown(given) else items(given)
        for block in blocks:
            applies = _applies(meter, block)
            if applies is False:
                continue
            amount = measure(meter.amount, block, properties)
            if applies is None:
                amount = Amount(known(0), amount.most, amount.is_by_use)
            yield Charge(
                resource,
                found.service,
                meter.name,
                meter.unit,
                by_use() if amount.is_by_use else amount,
                tuple(_variant(meter, block)),
            )


def _applies(meter: Meter, block: Any) -> bool | None:
    """Whether a row is about a block of properties; None where that can't be seen."""
    if is_unknown(block):
        return None
    asked = [(get(block, path), values, True) for path, values in meter.when.items()]
    asked += [(get(block, path), values, False) for path, values in meter.unless.items()]
    answers = [
        None if is_unknown(value) else _is_one_of(value, values) is wanted
        for value, values, wanted in asked
    ]
    return False if False in answers else None if None in answers else True


def _is_one_of(value: Any, values: tuple[Any, ...]) -> bool:
    if value is ABSENT:
        return None in values
    return _GIVEN in values or _plain(value) in {
        _plain(each) for each in values if each is not None
    }


def _plain(value: Any) -> str:
    return str(value).strip().lower()


def _variant(meter: Meter, block: Any) -> Iterator[str]:
    for path in meter.variant:
        value = get(block, path)
        if isinstance(value, str | int | float) and str(value).strip():
            yield _as_text(value)


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).strip()
