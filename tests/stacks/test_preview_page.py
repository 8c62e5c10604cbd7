"""The page of ``falaj preview``: everything on one screen, nothing left out in silence."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks import costs
from falaj.stacks.checking.preview import document_of
from falaj.stacks.command.packs import pack_configuration
from falaj.stacks.command.previewing import Preview, lines
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.lettering import columns
from tests.policies.reports.results import clean, small
from tests.stacks.states import place, resource, states


@pytest.fixture
def stack(tmp_path: Path) -> StackFile:
    (tmp_path / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    return StackFile("dev", Project.find(tmp_path))


@cache
def priced(name: str) -> costs.Costs:
    """What a shipped stack costs, counted once: that is what takes long."""
    return costs.of(states(name, "preview"), place(name))


def made(stack: StackFile, document: dict[str, Any], name: str = "aws-cluster") -> Preview:
    return Preview(stack, True, place(name), document, clean(), priced(name))


def text(preview: Preview, width: int = 100) -> str:
    return "\n".join(lines(preview, width))


def test_one_screen_says_where_what_how_much_and_what_is_next(stack: StackFile) -> None:
    page = text(made(stack, {"changeSummary": {"create": 67}, "steps": []}))
    assert len(page.splitlines()) <= 40
    assert page.startswith(
        "Preview of stack dev in aws/me-central-1, in the sandbox: nothing real"
    )
    assert "Places    aws/me-central-1 (1 resource)" in page
    assert "0 to 4 p5en.48xlarge (EKS node group): h200: USD 0.00 to 303.82 per hour" in page
    assert "c7i.xlarge (EKS node group): cpu: price unknown" in page
    assert "Costs     at least USD 0.00 per hour (0 per month), at most USD 303.82 per" in page
    assert "Changes   67 to create" in page
    assert "Policies  no violations: 4 rules judged 1 resource" in page
    assert "Next      falaj up" in page or "bin/falaj up" in page


def test_every_unknown_price_is_named(stack: StackFile) -> None:
    preview = made(stack, {})
    flat = " ".join(text(preview).split())
    assert preview.costs.unknown
    for each in preview.costs.unknown:
        assert each.charge.meter in flat
        assert each.charge.service in flat
    assert "--unknown-prices prices.yaml" in flat


def test_what_is_in_no_table_is_named(stack: StackFile) -> None:
    preview = made(stack, {})
    odd = costs.of([resource("aws:made/up:Thing")], "aws/me-central-1")
    page = text(dataclasses.replace(preview, costs=odd))
    assert "not known whether they cost: aws:made/up:Thing" in page


def test_an_unchanged_stack_has_nothing_next(stack: StackFile) -> None:
    page = text(made(stack, {"changeSummary": {"same": 67}}))
    assert "Changes   67 unchanged" in page
    assert "nothing: stack dev is as its file says" in page
    assert "falaj up" not in page


def step(op: str, name: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "urn": f"urn:pulumi:dev::shop::aws:kms/key:Key::{name}", **more}


def test_changes_are_named_with_what_differs(stack: StackFile) -> None:
    steps = [
        step("same", "stays"),
        step("update", "models", diffReasons=["tags"]),
        step("create-replacement", "data", replaceReasons=["kmsKeyId", "name"]),
        step("replace", "data", replaceReasons=["kmsKeyId", "name"]),
        step("delete-replaced", "data"),
        step("delete", "old"),
    ]
    counted = {"same": 1, "update": 1, "replace": 1, "delete": 1}
    page = text(made(stack, {"changeSummary": counted, "steps": steps}))
    assert "1 to update, 1 to replace, 1 to delete, 1 unchanged" in page
    assert "~ Key models: tags" in page
    assert page.count("+- Key data: kmsKeyId, name") == 1
    assert "- Key old" in page
    assert "stays" not in page


def test_many_changes_are_counted_not_cut_in_silence(stack: StackFile) -> None:
    steps = [step("delete", f"key-{number}") for number in range(30)]
    page = text(made(stack, {"changeSummary": {"delete": 30}, "steps": steps}))
    assert page.count("- Key key-") == 10
    assert "and 20 more (--details)" in page


def test_findings_change_the_verdict_and_what_is_next(stack: StackFile) -> None:
    whole = small()
    result = dataclasses.replace(whole, stacks=whole.stacks[:1])
    preview = dataclasses.replace(made(stack, {"changeSummary": {"create": 5}}), result=result)
    assert preview.fails
    page = text(preview)
    assert "no violations" not in page
    assert "Policies  2 violations, 1 undecided, which fails as well" in page
    assert "1 waived" in page
    assert "port 22 is open to 0.0.0.0/0" in page
    assert "What to change" in page
    assert "put right what is named above, then" in page
    assert "falaj up" not in page


@given(width=st.integers(40, 120), name=st.text(min_size=1, max_size=60))
def test_no_line_is_wider_than_the_terminal(width: int, name: str) -> None:
    place_of = Project.find(Path(__file__).parents[2])
    document = {
        "changeSummary": {"update": 1},
        "steps": [step("update", name, diffReasons=[name])],
    }
    preview = made(StackFile("dev", place_of), document)
    for line in lines(preview, width):
        assert columns(line) <= width
        assert "\x1b" not in line


@pytest.mark.parametrize(
    ("printed", "found"),
    [
        ("", None),
        ("error: {no}\n", None),
        ("[]", None),
        ('{"steps": []}', {"steps": []}),
        ('a {plugin} said\n{"steps": []}\nwarning: {late}\n', {"steps": []}),
        ('{not json}\n{"steps": []}', {"steps": []}),
        ('{"steps": [', None),
    ],
)
def test_the_engines_document_among_what_plugins_print(
    printed: str, found: dict[str, Any] | None
) -> None:
    assert document_of(printed) == found


def test_packs_only_say_what_they_find_where_that_is_asked_for() -> None:
    assert pack_configuration(advisory=True, strict=None) == {"all": "advisory"}
    assert pack_configuration(advisory=False, strict=False) == {"settings": {"strict": False}}
