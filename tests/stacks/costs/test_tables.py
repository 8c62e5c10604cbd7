"""The tables of what is billed, against the SDKs and against what our stacks make."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from falaj import components
from falaj.policies.model import kind_of
from falaj.sandbox import property_types
from falaj.sandbox.schema import Tables
from falaj.stacks import costs
from falaj.stacks.costs.amounts import HOURS, Unit
from falaj.stacks.costs.billing import READ, Meter, table
from falaj.stacks.costs.machines import READERS
from tests.stacks.states import ALL, place, resource, states

FOLDER = Path(costs.__file__).parent / "tables"
PACKAGES = {"aws": "aws", "azure": "azure-native"}
AMOUNT_KEYS = {
    "of", "absent", "plus", "times", "divide", "count", "first", "least", "most",
}  # fmt: skip


@cache
def sdk(package: str) -> Tables:
    return Tables(package)


def rows(file: str) -> list[dict[str, Any]]:
    return yaml.safe_load((FOLDER / f"{file}.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", ["aws", "azure", "kubernetes", "others"])
def test_each_group_names_the_vendors_page(file: str) -> None:
    for group in rows(file):
        assert set(group) <= {"service", "source", "charged", "free"}, group["service"]
        assert group["service"].strip()
        assert re.fullmatch(r"https://[\w./#-]+|README\.md", group["source"]), group["source"]
        assert group.get("charged") or group.get("free")
        for name, meters in (group.get("charged") or {}).items():
            assert meters, name
            for row in meters if isinstance(meters, list) else []:
                allowed = {"meter", "unit", "amount", "variant", "when", "unless", "within"}
                assert set(row) <= allowed, (name, row)
            if not isinstance(meters, list):
                assert all(isinstance(unit, str) for unit in meters.values()), name


@pytest.mark.parametrize("file", ["aws", "azure", "kubernetes", "others"])
def test_no_type_stands_in_a_table_twice(file: str) -> None:
    names = [
        name
        for group in rows(file)
        for name in [*(group.get("charged") or {}), *(group.get("free") or [])]
    ]
    assert not {name for name in names if names.count(name) > 1}


@pytest.mark.parametrize("file", PACKAGES)
def test_every_type_is_one_of_the_sdk(file: str) -> None:
    package = PACKAGES[file]
    known = {kind_of(token) for token in sdk(package).tokens()}
    modules = {re.split("[:/]", token.partition(":")[2])[0] for token in known}
    listed = [kind for kind in table() if kind.startswith(f"{package}:")]
    assert len(listed) > 300
    whole = [kind for kind in listed if kind.endswith("*")]
    assert {kind.split(":")[1].partition("/")[0] for kind in whole} <= modules
    # Azure's types stand for their former module as well, which the SDK has no more.
    current = {kind for kind in listed if kind not in whole}
    if package == "aws":
        assert not current - known
    for group in rows(file):
        for name in [*(group.get("charged") or {}), *(group.get("free") or [])]:
            token = f"{package}:{name}"
            assert package == "aws" or token in known, token


@pytest.mark.parametrize("kind", sorted(READERS))
def test_every_reader_is_for_a_type_of_the_sdk(kind: str) -> None:
    assert kind in {kind_of(token) for token in sdk(kind.partition(":")[0]).tokens()}


def paths_of(given: Any) -> Iterator[str]:
    """The paths of an amount."""
    if isinstance(given, str) and given not in {"use", "unknown", *READ}:
        yield given
    elif isinstance(given, list):
        for each in given:
            yield from paths_of(each)
    elif isinstance(given, Mapping):
        assert set(given) <= AMOUNT_KEYS, given
        for key in ("of", "count", "first", "least", "most"):
            yield from paths_of(given.get(key))


def has(
    tables: Tables, kind: property_types.Type | property_types.ObjectType | None, path: list[str]
) -> bool:
    """Whether a path leads somewhere in the SDK's types."""
    if not path:
        return True
    if isinstance(kind, property_types.ListOf):
        return has(tables, kind.item, path)
    if isinstance(kind, property_types.Either):
        return any(has(tables, each, path) for each in kind.members)
    if isinstance(kind, property_types.Reference):
        return has(tables, tables.objects[kind.name], path)
    if isinstance(kind, property_types.ObjectType):
        found = kind.properties.get(path[0])
        return found is not None and has(tables, found.type, path[1:])
    return isinstance(kind, property_types.Scalar) and kind.kind == "any"


@pytest.mark.slow
@pytest.mark.parametrize("file", PACKAGES)
def test_every_path_is_one_of_the_sdk(file: str) -> None:
    tables = sdk(PACKAGES[file])
    wrong: list[str] = []
    for group in rows(file):
        for name, meters in (group.get("charged") or {}).items():
            for row in meters if isinstance(meters, list) else []:
                last = name.rpartition("/")[2]
                token = (
                    f"aws:{name}:{last[0].upper()}{last[1:]}"
                    if file == "aws"
                    else f"azure-native:{name}"
                )
                found = tables.resource(token)
                assert found is not None, token
                within = row.get("within", "")
                variant = row.get("variant", [])
                given = [
                    *paths_of(row.get("amount")),
                    *([variant] if isinstance(variant, str) else variant),
                    *row.get("when", {}),
                    *row.get("unless", {}),
                ]
                for path in given:
                    root = path.startswith("^") or not within
                    whole = path.removeprefix("^") if root else f"{within}.{path}"
                    if not has(tables, found.inputs, whole.split(".")):
                        wrong.append(f"{name}: {whole}")
    assert not wrong


def test_units_are_times_or_things() -> None:
    for kind, found in table().items():
        for meter in found.meters:
            assert str(Unit.of(str(meter.unit))) == str(meter.unit)
            standing = meter.amount != "use"
            assert meter.unit.period or not standing, (kind, meter.name)
            assert not meter.unit.period or meter.unit.period in HOURS


def test_rows_of_one_meter_have_one_unit() -> None:
    for kind, found in table().items():
        units: dict[str, set[str]] = {}
        for meter in found.meters:
            units.setdefault(meter.name, set()).add(str(meter.unit))
        assert not {name: each for name, each in units.items() if len(each) > 1}, kind


@pytest.mark.parametrize("stack", ALL)
def test_every_type_of_the_shipped_stacks_is_classified(stack: str) -> None:
    found = costs.of(states(stack), place(stack))
    assert [each.type for each in found.unclassified] == []


def types_of_components(cloud: str) -> set[str]:
    """Types of the resources that components may make, whatever their settings are."""
    module, package = {
        "aws": ("pulumi_aws", "aws"), "azure": ("pulumi_azure_native", "azure-native"),
    }[cloud]  # fmt: skip
    found: set[str] = set()
    for path in Path(components.__file__).parent.joinpath(cloud).rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                names |= {one.asname or one.name: one.name for one in node.names}
            elif isinstance(node, ast.ImportFrom):
                names |= {
                    one.asname or one.name: f"{node.module}.{one.name}" for one in node.names
                }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            first, _, rest = ast.unparse(node.func).partition(".")
            whole = f"{names.get(first, '')}.{rest}".split(".")
            if whole[0] != module or len(whole) != 3:
                continue
            made = getattr(importlib.import_module(f"{whole[0]}.{whole[1]}"), whole[2])
            if isinstance(made, type) and issubclass(made, pulumi.CustomResource):
                last = whole[2]
                inner = f"/{last[0].lower()}{last[1:]}" if package == "aws" else ""
                found.add(f"{package}:{whole[1]}{inner}:{last}")
    return found


@pytest.mark.parametrize("cloud", ["aws", "azure"])
def test_every_type_that_components_may_make_is_classified(cloud: str) -> None:
    made = types_of_components(cloud)
    known = {kind_of(token) for token in sdk(PACKAGES[cloud]).tokens()}
    assert len(made) > 30
    assert {kind_of(each) for each in made} <= known
    assert {each for each in made if costs.billed(kind_of(each)) is None} == set()


def test_the_local_stacks_types_are_classified() -> None:
    kinds = ["falaj-local:index:Dataset", "falaj-local:index:InferenceService"]
    found = costs.of([resource(kind) for kind in kinds])
    assert found.unclassified == ()
    assert found.lines == ()


def test_an_unlisted_type_of_a_listed_module_is_not_taken_for_free() -> None:
    found = costs.of([resource("aws:ec2/somethingNew:SomethingNew")])
    assert [each.type for each in found.unclassified] == ["aws:ec2/somethingNew:SomethingNew"]


def test_meters_are_told_by_type() -> None:
    billed = costs.billed("aws:ec2/natGateway:NatGateway")
    assert billed is not None
    assert [each.name for each in billed.meters] == ["gateway", "data through it"]
    assert isinstance(billed.meters[0], Meter)
    assert costs.billed("oci:core/instance:Instance") is None
