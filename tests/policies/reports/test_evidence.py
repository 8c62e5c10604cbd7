"""The evidence report as text: complete, escaped, and honest."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from falaj.policies.controls import controls, frameworks
from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.evidence.coverage import framework_views, rule_views
from falaj.policies.reports.evidence.register import Register, ranges
from falaj.policies.reports.result import CheckResult, RuleRecord
from tests.policies.reports.results import ARABIC, HOSTILE, RULES, clean, large, small

VOID = {"meta", "use", "path", "rect", "circle", "br", "wbr"}


class Outline(HTMLParser):
    """Tags in order, ids, links inside of the page, and what isn't closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.links: set[str] = set()
        self.headings: list[int] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        given = dict(attrs)
        assert not any(name.startswith("on") or name == "style" for name in given), tag
        if "id" in given:
            self.ids.append(given["id"] or "")
        for name in ("href", "src"):
            if name in given:
                self.links.add(given[name] or "")
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize(
    "result",
    [
        small(),
        clean(),
        replace(small(), stacks=()),
        replace(small(), rules=()),
        replace(small(), stacks=(replace(small().stacks[0], resources=()),)),
        large(2, 80),
    ],
    ids=["small", "clean", "no stacks", "no rules", "no resources", "large"],
)
def test_it_is_sound_html_that_leads_nowhere_outside(result: CheckResult) -> None:
    outline = Outline(evidence(result))
    assert outline.open == []
    assert not outline.tags & {"script", "link", "img", "iframe", "object", "form", "base"}
    assert len(outline.ids) == len(set(outline.ids))
    assert all(each.startswith("#") for each in outline.links)
    assert {each[1:] for each in outline.links} <= set(outline.ids)
    # Headings go down one step at a time.
    for one, two in zip(outline.headings, outline.headings[1:], strict=False):
        assert two <= one + 1


def test_names_are_never_markup() -> None:
    text = evidence(small())
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert f'<bdi class="name">{ARABIC}</bdi>' in text


def test_the_policy_allows_its_own_style_alone() -> None:
    text = evidence(small())
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.S)
    assert policy
    assert style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert policy[1] == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )


def test_every_control_is_there_with_what_it_needs_besides() -> None:
    text = evidence(small())
    for framework in frameworks():
        assert f'id="framework-{framework.key}"' in text
    assert text.count('<details class="control ') == len(controls())
    assert text.count("What it cannot do") == len(controls())
    assert "A transfer regime, not a localisation law" in text
    assert "Process: an assessment is made and signed by people" in text


def test_it_says_what_was_judged_and_by_what() -> None:
    text = evidence(small())
    for part in (
        "1 of 2 stacks violate rules, and 1 could not be checked.",
        "the destination bucket is in eu-west-1; data may be in me-central-1",
        "Replicate to a bucket in me-central-1, or remove the rule.",
        "stacks/__main__.py:41",
        "W-2026-004",
        "130 days left",
        '1 waived (<a href="#waivers">W-2026-004</a>)',
        "waiver W-2025-001 expired on 2026-01-31",
        "the backend can&#39;t be reached",
        "ab" * 32,
        "12" * 32,
        "3.272.0",
        "21 November 2026, 09:30 UTC",
    ):
        assert part in text, part
    assert "No rule is violated in any stack that was checked." in evidence(clean())


def test_the_same_result_gives_the_same_file() -> None:
    assert evidence(small()) == evidence(small())


def test_a_control_is_as_bad_as_its_worst_rule() -> None:
    register = Register(small())
    views = framework_views(rule_views(small(), register))
    states = {each.control.reference: each.state for view in views for each in view.controls}
    assert states["pdpl:22"] == "found"
    assert states["pdpl:20"] == "undecided"
    assert states["pdpl:21"] == "uncovered"
    assert states["iso27001:A.5.9"] == "undecided"
    fine = {
        each.control.reference: each.state
        for view in framework_views(rule_views(clean(), Register(clean())))
        for each in view.controls
    }
    assert fine["pdpl:22"] == "clear"


def test_a_rule_without_resources_proves_nothing() -> None:
    idle = RuleRecord("kubernetes-x", "kubernetes", "X", "low", ("gdpr:25",), "X.")
    result = replace(clean(), rules=(idle,))
    views = framework_views(rule_views(result, Register(result)))
    states = {each.control.reference: each.state for view in views for each in view.controls}
    assert states["gdpr:25"] == "idle"
    assert "The stacks hold nothing for" in evidence(result)


def test_controls_that_this_version_does_not_know_are_left_out() -> None:
    newer = replace(RULES[0], controls=("pdpl:22", "pdpl:999"))
    assert "pdpl:22, pdpl:999" in evidence(replace(clean(), rules=(newer,)))


def test_waived_is_not_clear() -> None:
    stack = small().stacks[0]
    kept = tuple(each for each in stack.outcomes if each.status == "waived")
    result = replace(small(), stacks=(replace(stack, outcomes=kept),))
    views = framework_views(rule_views(result, Register(result)))
    states = {each.control.reference: each.state for view in views for each in view.controls}
    assert states["pdpl:20"] == "waived"


def test_numbers_lead_from_rules_to_resources() -> None:
    result = large(2, 80)
    register = Register(result)
    assert [each.number for each in register.entries] == list(range(1, 161))
    assert ranges(each.number for each in register.judged[RULES[0].id]) == "1\u2013160"
    assert "No. 1\u2013160" in evidence(result)
    assert ranges([7, 1, 2, 3, 9, 10, 3]) == "1\u20133, 7, 9\u201310"
    assert ranges([]) == ""


def test_the_map_counts_every_resource_once() -> None:
    register = Register(large(5, 100))
    assert sum(each.total for each in register.columns) == 500
    by_stack = [sum(one.total for one in columns) for _, columns in register.columns_by_stack]
    assert by_stack == [100] * 5
    assert [each.region for each in register.columns] == [
        "in the country", "in the country", "in the country", "global", "not known",
        "no place of their own",
    ]  # fmt: skip
    assert Register(small()).columns[0].counts == {
        "customer-key": 1, "provider-key": 1, "none": 1, "unknown": 0, "not-applicable": 1,
    }  # fmt: skip


def test_a_thousand_resources_in_five_stacks_stay_small() -> None:
    assert len(evidence(large()).encode()) < 3_000_000


def _colours(text: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", text))


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(each * 2 for each in colour[1:])
    parts = [int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)]
    linear = [
        each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark", "print"])
def test_text_stands_out_from_its_ground(scheme: str) -> None:
    style = re.search(r"<style>(.*?)</style>", evidence(clean()), re.S)
    assert style
    parts = style[1].split("@media")
    light = _colours(parts[0])
    found = {
        "light": light,
        "dark": light | _colours(next(each for each in parts if "scheme: dark" in each)),
        "print": light | _colours(next(each for each in parts if each.startswith(" print"))),
    }[scheme]
    pairs = [
        (ink, ground)
        for ink in ("ink", "soft", "link", "found", "undecided", "waived", "clear", "idle")
        for ground in ("paper", "raised")
    ] + [("ink", "wash"), ("raised", "found")]
    pairs += [(each, f"{each}-wash") for each in ("found", "undecided", "clear")]
    for ink, ground in pairs:
        high, low = sorted((_luminance(found[ink]), _luminance(found[ground])), reverse=True)
        # https://www.w3.org/TR/WCAG21/#contrast-minimum
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)
