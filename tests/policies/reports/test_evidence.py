"""The evidence report as text: complete, escaped, and honest."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import get_args

import pytest

from falaj.policies.controls import controls, frameworks
from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.evidence.views import Register, framework_views, ranges, rule_views
from falaj.policies.reports.result import AnsweredBy, CheckResult, Revision, RuleRecord
from falaj.policies.reports.wording import LANGUAGES, Language, Wording
from tests.policies.reports.results import (
    ARABIC,
    HOSTILE,
    RULES,
    answered,
    clean,
    hostile,
    large,
    small,
)

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


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    "result",
    [
        small(),
        clean(),
        replace(small(), stacks=()),
        replace(small(), rules=()),
        replace(small(), stacks=(replace(small().stacks[0], resources=()),)),
        large(2, 80),
        answered(*get_args(AnsweredBy)),
        hostile("</title></style></code><img src=x onerror=alert(1)>{{ 7*7 }}"),
    ],
    ids=[
        "small", "clean", "no stacks", "no rules", "no resources", "large", "all sources",
        "hostile",
    ],
)  # fmt: skip
def test_it_is_sound_html_that_leads_nowhere_outside(
    result: CheckResult, language: Language
) -> None:
    outline = Outline(evidence(result, language=language, signed_by="ab" * 32))
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


def band(result: CheckResult, language: Language = "en") -> str:
    """What the band at the top says, as text; nothing but the way to the result is before it."""
    text = evidence(result, language=language)
    before, found, _ = re.split(r"(<aside class=\"band.*?</aside>)", text, maxsplit=1, flags=re.S)
    assert re.sub(r"<[^>]*>|\s", "", before.partition("<body>")[2]) == re.sub(
        r"\s", "", Wording(language).plain("skip")
    )
    return " ".join(re.sub(r"<[^>]*>", "", found).split())


SAID = {
    "sandbox": ("nothing real was looked at", "preview of what the program declares"),
    "sandbox-and-others": ("other providers answered as well", "Other providers in s0: random, "),
    "sandbox-state": ("nothing real was looked at", "None of it exists"),
    "machine": ("a plan, not what runs", "Falaj's provider for this machine"),
    "cloud-preview": ("a plan, not what is there", "The clouds' own providers answered"),
    "exported-state": ("what a file says", "The cloud was not asked"),
    "backend": ("its record of what is deployed", "The cloud was not asked"),
    "nobody": ("Nothing answered", "Nothing in this report speaks for it"),
}


@pytest.mark.parametrize("source", get_args(AnsweredBy))
def test_the_band_says_what_answered(source: AnsweredBy) -> None:
    said = band(answered(source))
    assert all(part in said for part in SAID[source])
    # Nobody who reads it takes one for the other.
    for other, parts in SAID.items():
        if parts[0] not in SAID[source][0]:
            assert parts[0] not in said, other
    assert "Sandbox" in said if source.startswith("sandbox") else "andbox" not in said
    for language in LANGUAGES:
        assert Wording(language).plain(f"headline.{source}") in band(answered(source), language)
        cell = Wording(language)(f"answer.{source}")
        assert cell in evidence(answered(source), language=language)


def test_a_mixture_says_so_for_each_stack() -> None:
    said = band(answered("sandbox", "machine", "sandbox", "backend"))
    assert said.startswith("Different sources answered: read each stack by its own")
    assert "Sandbox: nothing real was looked at. Stacks: s0, s2." in said
    assert "This machine: a plan, not what runs. Stacks: s1." in said
    assert "Real backend: its record of what is deployed. Stacks: s3." in said
    # Two kinds of the sandbox are a mixture as well.
    assert band(answered("sandbox", "sandbox-state")).startswith("Different sources")


def test_what_could_not_be_checked_does_not_blur_what_answered() -> None:
    said = band(answered("sandbox", "nobody"))
    assert said.startswith("Sandbox: nothing real was looked at Stacks: s0.")
    assert "Nothing answered. Stacks: s1." in said
    assert band(replace(clean(), stacks=())).startswith("Nothing answered")


def test_a_state_says_how_old_it_is() -> None:
    result = answered("exported-state", "exported-state")
    dated = replace(result.stacks[0], state_written=datetime(2025, 2, 3, 4, 5, tzinfo=UTC))
    said = band(replace(result, stacks=(dated, result.stacks[1])))
    assert "s0: state of 3 February 2025, 04:05 UTC." in said
    assert "s1: the state doesn't say when it was written." in said


def origin(result: CheckResult) -> str:
    found = evidence(result).partition('<section id="origin"')[2].partition("<h3>")[0]
    return " ".join(re.sub(r"<[^>]*>", " ", found).split())


def test_it_says_who_asked_when_and_from_which_commit() -> None:
    said = origin(small())
    commit = "9f2c41d0b7" + "ab" * 15
    for part in (
        "Run by fatima@ci-runner-7",
        "CI run GitLab CI/CD 4711 , started by fatima.s , for commit " + commit,
        "https://git.example.ae/platform/falaj/-/jobs/4711",
        "Started 21 November 2026, 09:30 UTC",
        f"Commit {commit} working tree clean.",
        "Pulumi 3.272.0",
        "Python 3.11.2",
        "Falaj 0.1.0",
        "No signature was made with it.",
    ):
        assert part in said, part
    without = origin(clean())
    assert "the project is not in git" in without
    assert "No engine was asked." in without
    assert "CI run" not in without


@pytest.mark.parametrize(
    ("revision", "part"),
    [
        (Revision("ab" * 20, changed=True), "working tree changed. Files were changed"),
        (Revision("", problem="fatal: dubious"), "Commit not known: fatal: dubious"),
    ],
)
def test_what_the_commit_does_not_hold_is_said(revision: Revision, part: str) -> None:
    result = small()
    provenance = replace(result.provenance, revision=revision)
    assert part in origin(replace(result, provenance=provenance))


def test_a_page_that_is_to_be_signed_names_the_key() -> None:
    text = evidence(small(), signed_by="ab" * 32)
    assert f'<meta name="falaj-signed-by" content="sha256:{"ab" * 32}">' in text
    assert "openssl pkeyutl -verify" in text
    assert "falaj-signed-by" not in evidence(small())


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
        '1 waived (<a href="#waivers"><bdi dir="ltr">W-2026-004</bdi></a>)',
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


def folded(text: str) -> tuple[list[str], str]:
    """The closed folds, and the page without them."""
    folds: list[str] = []
    for part in re.split(r'(?=<details class="folded">)', text)[1:]:
        depth = 0
        for each in re.finditer(r"<(/?)details", part):
            depth += -1 if each[1] else 1
            if depth == 0:
                folds.append(part[: each.end()])
                break
    for each in folds:
        text = text.replace(each, "", 1)
    return folds, text


def test_what_judged_nothing_is_folded_away_and_counted() -> None:
    idle = RuleRecord("kubernetes-x", "kubernetes", "X", "low", ("gdpr:25",), "X.")
    result = replace(clean(), rules=(*RULES, idle))
    folds, rest = folded(evidence(result))
    assert not [each for each in folds if re.match("<details[^>]* open", each)]
    kept = re.findall(r'<details class="(?:rule|control) (\w+)"', rest)
    away = re.findall(r'<details class="(?:rule|control) (\w+)"', "".join(folds))
    assert set(kept) == {"clear"}
    assert set(away) == {"idle", "uncovered"}
    # Each says how many it holds, and none is lost.
    for each in folds:
        number = re.search(r"<summary>([\d,]+) ", each)
        assert number
        assert int(number[1]) == len(re.findall(r'<details class="(?:rule|control)', each))
    assert len(kept) + len(away) == len(controls()) + len(result.rules)
    assert "1 rule that had nothing to judge" in folds[-1]
    assert "kubernetes-x" in folds[-1]
    # Only rules that judged are counted as such.
    assert re.search(r"<dt>rules that judged</dt><dd>4</dd>", rest)


def test_each_rule_says_how_many_resources_it_judged() -> None:
    text = evidence(small())
    for rule in RULES:
        summary = re.search(rf'id="rule-{rule.id}">\s*<summary>(.*?)</summary>', text, re.S)
        assert summary
        assert '<span class="judged">5 resources</span>' in summary[1]


def test_a_rule_that_is_listed_twice_judged_once() -> None:
    stack = clean().stacks[0]
    doubled = replace(stack.resources[0], rules=(RULES[0].id, RULES[0].id))
    result = replace(clean(), stacks=(replace(stack, resources=(doubled,)),))
    assert result.judged == {RULES[0].id: 1}
    assert len(Register(result).judged[RULES[0].id]) == 1


def test_the_arabic_page_is_arabic_and_marks_what_is_not() -> None:
    text = evidence(small(), language="ar")
    assert '<html lang="ar" dir="rtl">' in text
    assert "نصوص القواعد والأسباب والضوابط واردة بالإنجليزية" in text
    assert "Texts of rules" not in evidence(small())
    # No word of the page's own is left in English: what is in Latin letters is marked as such.
    body = text.partition("<body>")[2]
    for marked in (r"<bdi.*?</bdi>", r"<code.*?</code>", r'<span class="id" dir="ltr">.*?</span>'):
        body = re.sub(marked, "", body, flags=re.S)
    left = set(re.findall(r"[A-Za-z][A-Za-z.+-]*", re.sub(r"<[^>]*>|&\w+;", "", body)))
    assert left <= {"sandbox", "stacks", "commit", "git", "CI", "SHA-", "Pulumi", "Python"}
    for attribute in re.findall(r'(?:aria-label|data-label)="([^"]*)"', text):
        assert re.search(r"[\u0621-\u064a]", attribute), attribute


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
    assert 'No. <bdi dir="ltr">1\u2013160</bdi>' in evidence(result)
    assert ranges([7, 1, 2, 3, 9, 10, 3]) == "1\u20133, 7, 9\u201310"
    assert ranges([]) == ""


def test_the_map_counts_every_resource_once() -> None:
    register = Register(large(5, 100))
    assert sum(each.total for each in register.columns) == 500
    by_stack = [sum(one.total for one in columns) for _, columns in register.columns_by_stack]
    assert by_stack == [100] * 5
    assert [each.region for each in register.columns] == [
        "home", "home", "home", "global", "unknown", "none",
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
    pairs += [("ink", f"{each}-wash") for each in ("waived", "undecided")]
    for ink, ground in pairs:
        high, low = sorted((_luminance(found[ink]), _luminance(found[ground])), reverse=True)
        # https://www.w3.org/TR/WCAG21/#contrast-minimum
        assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)
