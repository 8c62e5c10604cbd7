"""Price files: what they fill in, and how a wrong one is refused."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.stacks import costs
from falaj.stacks.costs import Costs, PriceError, Prices, read_prices
from tests.stacks.states import place, resource, states

AWS = "aws/me-central-1"
H200 = catalogue.parse(AWS).machine("p5en.48xlarge").usd_per_hour or Decimal(0)
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
NAT = "aws:ec2/natGateway:NatGateway"
ROW = {
    "type": LUSTRE, "meter": "storage", "price": 0.3, "unit": "GiB-month",
    "date": "2026-09-01", "source": "an offer",
}  # fmt: skip
MACHINE = {
    "machine": "c7i.xlarge", "price": 0.2, "unit": "hour", "date": "2026-09-01",
    "source": "an offer",
}  # fmt: skip
FILES = resource(
    LUSTRE, "files", storageCapacity=2400, deploymentType="PERSISTENT_2", storageType="SSD",
    perUnitStorageThroughput=250,
)  # fmt: skip


def write(folder: Path, document: Any) -> Path:
    path = folder / "prices.yaml"
    text = document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, *rows: dict[str, Any], **more: Any) -> Prices:
    return read_prices(write(folder, {**more, "prices": list(rows)}))


def refused(folder: Path, document: Any) -> str:
    with pytest.raises(PriceError) as caught:
        read_prices(write(folder, document))
    return str(caught.value).replace(f"{folder}/", "")


def of(prices: Prices, *made: dict[str, Any], where: str = AWS) -> Costs:
    return costs.of(made or [FILES], where, prices)


def test_a_price_of_ones_own_fills_what_is_unknown(tmp_path: Path) -> None:
    assert of(costs.NO_PRICES).total.most == 0
    found = of(read(tmp_path, ROW))
    assert found.total.least == found.total.most == Decimal(2400) * Decimal("0.3") / 730
    assert found.unknown == ()
    assert "an offer, 2026-09-01" in found.as_text()
    assert [each["prices"][0]["own"] for each in found.as_json()["lines"] if each["prices"]] == [
        True
    ]


@pytest.mark.parametrize(
    ("unit", "hours"), [("GiB-hour", 1), ("GiB-day", 24), ("GiB-month", 730), ("GiB-year", 8760)]
)
def test_prices_for_any_time_are_told_by_the_hour(unit: str, hours: int, tmp_path: Path) -> None:
    found = of(read(tmp_path, {**ROW, "unit": unit}))
    assert found.total.most == 2400 * Decimal("0.3") / hours


def test_the_most_exact_price_counts(tmp_path: Path) -> None:
    rows = [
        ROW,
        {**ROW, "price": 1, "place": AWS},
        {**ROW, "price": 2, "variant": "PERSISTENT_2"},
        {**ROW, "price": 3, "variant": ["PERSISTENT_2", 250]},
        {**ROW, "price": 4, "variant": ["PERSISTENT_2", 500]},
        {**ROW, "price": 5, "variant": ["PERSISTENT_2", 250, "SSD"], "place": "aws/us-east-1"},
    ]
    counts = {1: "0.3", 2: "1", 3: "2", 4: "3", 5: "3", 6: "3"}
    for number, price in counts.items():
        found = of(read(tmp_path, *rows[:number]))
        (line,) = [each for each in found.lines if each.charge.meter == "storage"]
        assert line.prices[0].usd == Decimal(price)


def test_two_prices_as_exact_as_each_other_are_refused(tmp_path: Path) -> None:
    prices = read(tmp_path, {**ROW, "variant": "SSD"}, {**ROW, "variant": "PERSISTENT_2"})
    with pytest.raises(PriceError, match=r"prices.yaml:2 and .*prices.yaml:9 both give a price"):
        of(prices)


def test_a_price_of_another_place_fills_nothing(tmp_path: Path) -> None:
    assert of(read(tmp_path, {**ROW, "place": "aws/eu-west-1"})).unknown


def test_what_a_cloud_runs_for_all_regions_takes_prices_of_the_stacks_place(
    tmp_path: Path,
) -> None:
    zone = resource("aws:route53/zone:Zone", "zone")
    row = {**ROW, "type": "aws:route53/zone:Zone", "meter": "zone", "unit": "month", "price": 0.5}
    for where in (AWS, "global"):
        assert not of(read(tmp_path, {**row, "place": where}), zone).unknown
    assert of(read(tmp_path, {**row, "place": "aws/eu-west-1"}), zone).unknown


def test_machines_without_a_list_price_take_ones_own(tmp_path: Path) -> None:
    found = costs.of(states("aws-cluster"), AWS, read(tmp_path, MACHINE, {
        **MACHINE, "machine": "g6e.xlarge", "price": 2, "place": AWS,
    }))  # fmt: skip
    pools = {each.charge.machines: each for each in found.lines if each.charge.is_machines}
    assert pools["c7i.xlarge",].least == Decimal("0.4")
    assert pools["c7i.xlarge",].most == Decimal("1.2")
    assert (pools["g6e.xlarge",].least, pools["g6e.xlarge",].most) == (0, 16)
    assert not [each for each in found.unknown if each.charge.is_machines]


def test_a_list_price_is_overridden_only_where_that_is_said(tmp_path: Path) -> None:
    row = {**MACHINE, "machine": "p5en.48xlarge", "price": 50}
    said = refused(tmp_path, {"prices": [row]})
    assert said.startswith(
        "prices.yaml:2: p5en.48xlarge has a list price at aws/me-central-1: USD"
    )
    assert "negotiated: true" in said
    machine = resource("aws:ec2/instance:Instance", instanceType="p5en.48xlarge")
    assert of(costs.NO_PRICES, machine).total.most == H200
    assert of(read(tmp_path, {**row, "negotiated": True}), machine).total.most == 50


@pytest.mark.parametrize("capacity", ["spot", "reservation", "capacity-block"])
def test_machines_bought_otherwise_have_prices_of_their_own(capacity: str, tmp_path: Path) -> None:
    prices = read(tmp_path, {**MACHINE, "machine": "p5en.48xlarge", "capacity": capacity})
    group = resource(
        "aws:eks/nodeGroup:NodeGroup", instanceTypes=["p5en.48xlarge"],
        capacityType=capacity.upper().replace("-", "_"),
        scalingConfig={"minSize": 1, "maxSize": 2},
    )  # fmt: skip
    pool = next(each for each in of(prices, group).lines if each.charge.is_machines)
    assert pool.least == Decimal("0.2")
    on_demand = {**group["inputs"], "capacityType": "ON_DEMAND"}
    pool = next(
        each
        for each in of(prices, {**group, "inputs": on_demand}).lines
        if each.charge.is_machines
    )
    assert pool.least == H200


def test_another_currency_needs_its_rate(tmp_path: Path) -> None:
    row = {**ROW, "price": "3.6725", "currency": "AED", "unit": "GiB-hour"}
    said = refused(tmp_path, {"prices": [row]})
    assert said.startswith("prices.yaml:2: currency: given AED, and the file states no rate")
    rate = {"perUsd": 3.6725, "date": "2026-09-01", "source": "the peg"}
    found = of(read(tmp_path, row, rates={"AED": rate}))
    assert found.total.most == 2400
    assert "3.6725 AED a US dollar (the peg)" in found.as_text(200)


def test_a_price_may_be_for_many_units(tmp_path: Path) -> None:
    row = {
        **ROW, "type": "aws:kms/key:Key", "meter": "requests", "unit": "request", "per": 10000,
        "price": 0.03, "expected": 2_000_000,
    }  # fmt: skip
    found = of(read(tmp_path, row), resource("aws:kms/key:Key"))
    assert found.total.monthly_most == 6
    assert found.by_use == ()


def test_a_price_of_use_is_shown_where_nobody_says_how_much(tmp_path: Path) -> None:
    row = {**ROW, "type": NAT, "meter": "data through it", "unit": "GiB", "price": 0.05}
    found = of(read(tmp_path, row), resource(NAT))
    assert found.total.most == 0
    assert "data through it: it; USD 0.05 per GiB" in found.as_text()
    expected = of(read(tmp_path, {**row, "expected": 100}), resource(NAT))
    assert expected.total.monthly_most == 5
    assert "100 GiB expected a month" in expected.as_text(120)


def test_a_type_that_nobody_knows_may_have_a_price(tmp_path: Path) -> None:
    row = {**ROW, "type": "oci:Core/instance:Instance", "unit": "month", "price": 73}
    del row["meter"]
    web = resource("oci:Core/instance:Instance", "web")
    found = of(read(tmp_path, row), web, web | {"urn": web["urn"] + "2"})
    assert found.unclassified == ()
    assert found.total.monthly_most == 146


@pytest.mark.parametrize("stack", ["aws-smb", "azure-cluster", "aws-foundation", "azure-smb"])
def test_a_filled_price_file_leaves_no_price_unknown(stack: str, tmp_path: Path) -> None:
    before = costs.of(states(stack), place(stack))
    assert before.unknown
    text = before.as_price_file()
    empty = refused(tmp_path, text)
    assert "price: given None; allowed: a number" in empty
    document = yaml.safe_load(text)
    for row in document["prices"]:
        row |= {"price": 1, "date": "2026-09-01", "source": "all cost the same"}
    after = costs.of(states(stack), place(stack), read_prices(write(tmp_path, document)))
    assert after.unknown == ()
    assert all(each.prices for each in after.lines)
    assert after.total.most > 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"price": -1}, "prices.yaml:4: price: given -1; allowed: a number, 0 or more"),
        ({"price": "free"}, "price: given 'free'; allowed: a number, 0 or more"),
        ({"price": True}, "price: given True; allowed:"),
        ({"price": float("inf")}, "price: given inf; allowed: a number, 0 or more"),
        ({"price": float("nan")}, "price: given nan; allowed: a number, 0 or more"),
        ({"unit": "hour"}, "prices.yaml:2: unit: given hour; allowed: GiB-month"),
        ({"unit": ""}, "prices.yaml:5: unit: given ''; allowed:"),
        ({"meter": "backup"}, "meter: given 'backup'; allowed: storage, "),
        ({"meter": ""}, "meter: missing; aws:fsx/lustreFileSystem:LustreFileSystem is billed by"),
        ({"type": "bucket"}, "prices.yaml:2: type: given 'bucket'; allowed: text that matches"),
        ({"type": "aws:ec2/vpc:Vpc"}, "aws:ec2/vpc:Vpc costs nothing by itself (https://"),
        ({"type": "aws:ec2/instance:Instance", "meter": "machine"},
         "aws:ec2/instance:Instance is billed by its machines; give their prices with machine:"),
        ({"type": "x:y:Z"}, "meter: given 'storage', and no table knows what x:y:Z is billed by"),
        ({"type": "x:y:Z", "meter": ""}, "unit: given GiB-month; allowed for a type that no"),
        ({"date": "yesterday"}, "prices.yaml:6: date: given 'yesterday'; allowed: a date as"),
        ({"source": ""}, "source: given ''; allowed:"),
        ({"currency": "EUR"}, "currency: given 'EUR'; allowed: 'USD' or 'AED'"),
        ({"place": "Dubai"}, "place: given 'Dubai'; allowed: text that matches"),
        ({"per": 0}, "per: given 0; allowed: a number above 0"),
        ({"machine": "p5en.48xlarge"}, "prices.yaml:2: type and machine: given both"),
        ({"capacity": "spot"}, "capacity: not allowed for a price of a type"),
        ({"capacity": "borrowed"}, "capacity: given 'borrowed'; allowed: 'on-demand', 'spot'"),
        ({"negotiated": "perhaps"}, "negotiated: given 'perhaps'; allowed: true or false"),
        ({"negotiated": [True]}, "negotiated: given [True]; allowed: true or false"),
        ({"negotiated": 2}, "negotiated: given 2; allowed: true or false"),
        ({"date": True}, "date: given True; allowed: a date as 2026-09-01"),
        ({"price": True}, "price: given True; allowed: a number from 0"),
        ({"meter": True}, "meter: given True; allowed: text"),
        ({"currency": False}, "currency: given False; allowed: USD, AED"),
        ({"expected": 5}, "expected: aws:fsx/lustreFileSystem:LustreFileSystem says itself"),
        ({"prize": 5}, "prices.yaml:8: prize: unknown key; did you mean price?; allowed: type"),
    ],
)  # fmt: skip
def test_a_row_that_cant_be_used_is_refused(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    assert said in refused(tmp_path, {"prices": [{**ROW, **change}]})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({**MACHINE, "unit": "GiB-month"}, "unit: given GiB-month; allowed for a machine: a time"),
        ({**MACHINE, "meter": "machines"}, "meter: not allowed for a price of a machine"),
        ({**MACHINE, "variant": "big"}, "variant: not allowed for a price of a machine"),
        ({**MACHINE, "machine": "a b"}, "machine: given 'a b'; allowed:"),
        ({key: value for key, value in ROW.items() if key != "type"}, "given neither; allowed"),
        ({key: value for key, value in ROW.items() if key != "price"}, "price: missing"),
        ({key: value for key, value in ROW.items() if key != "date"}, "date: missing"),
        ({key: value for key, value in ROW.items() if key != "source"}, "source: missing"),
        ("a price", "prices.yaml:2: expected a mapping with type, meter"),
        (None, "prices.yaml:2: expected a mapping with type, meter"),
    ],
)
def test_a_row_that_lacks_something_is_refused(row: Any, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, {"prices": [row]})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "prices.yaml:1: expected a mapping with prices:"),
        ("[]", "prices.yaml:1: expected a mapping with prices:"),
        ("prices: 3", "prices.yaml:1: prices: expected a list"),
        ("rates: {}", "prices: expected a list"),
        ("\nprices: []\nprice: []", "prices.yaml:3: price: unknown key; allowed: prices, rates"),
        ("prices: []\nprices: []", "prices.yaml:2: prices: given twice"),
        ("prices:\n- price: 1\n  price: 2", "prices.yaml:3: price: given twice"),
        ("prices: [\n  {", "prices.yaml:2: no YAML"),
        ("prices: []\nrates: 3", "prices.yaml:2: rates: expected a mapping"),
        ("prices: []\nrates:\n  EUR: {}", "prices.yaml:3: rates: given 'EUR'; allowed: AED"),
        ("prices: []\nrates:\n  AED: {perUsd: 0}", "prices.yaml:3: perUsd: given 0; allowed: a"),
        ("prices: []\nrates: {AED: 3.67}", "expected a mapping with perUsd, date, source"),
        ("prices: !!python/object:os.system []", "could not determine a constructor"),
        ("a: &a [*a]\nprices: []", "the file can't be read: it is nested deeper"),
    ],
)
def test_a_file_that_isnt_one_is_refused(text: str, said: str, tmp_path: Path) -> None:
    assert said in refused(tmp_path, text)


def test_every_problem_is_named_at_once(tmp_path: Path) -> None:
    rows = [{**ROW, "price": -1}, ROW, {**ROW, "unit": ""}]
    assert len(refused(tmp_path, {"prices": rows}).splitlines()) == 2
    said = refused(tmp_path, {"prices": [ROW, ROW, {**ROW, "meter": "nothing"}]})
    assert said.splitlines()[1].endswith("prices.yaml:2 has a price for the same already")
    assert len(said.splitlines()) == 2


def test_a_file_that_isnt_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match="there is no such file"):
        read_prices(tmp_path / "prices.yaml")
    with pytest.raises(PriceError, match="can't be read"):
        read_prices(tmp_path)
    (tmp_path / "prices.yaml").write_bytes(b"\xff\xfe\x00prices")
    with pytest.raises(PriceError, match=r"prices\.yaml:1"):
        read_prices(tmp_path / "prices.yaml")


@given(st.text(max_size=300) | st.from_regex(r"prices:\n(- [a-z]{1,6}: .{0,20}\n){0,4}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prices.yaml"
        path.write_text(text, encoding="utf-8", errors="replace")
        try:
            read_prices(path)
        except PriceError as error:
            assert str(path) in str(error)
