"""Whatever programs call their resources, every report stays sound."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import get_args

from hypothesis import given, settings
from hypothesis import strategies as st
from junitparser import JUnitXml

from falaj.policies.reports.evidence import evidence
from falaj.policies.reports.junit import to_junit
from falaj.policies.reports.result import (
    AnsweredBy,
    CheckResult,
    CiRun,
    Location,
    Outcome,
    PackDigest,
    Provenance,
    Revision,
    WaiverUse,
    read_result,
)
from falaj.policies.reports.sarif import to_sarif
from falaj.policies.reports.summary import summarise
from falaj.policies.reports.wording import LANGUAGES
from tests.examples import examples
from tests.policies.reports.results import clean, resource
from tests.policies.reports.test_evidence import Outline
from tests.policies.reports.test_sarif import validator

TELLING = (
    "<b>",
    "</details>",
    "]]>",
    "&amp;",
    "\x00",
    "\x1b[2J",
    "\u202e",
    "سجل",
    "{{ 7*7 }}",
    "'\"",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(TELLING)


MOMENTS = st.datetimes(
    datetime(1971, 1, 1), datetime(8999, 1, 1), timezones=st.just(timezone(timedelta(hours=4)))
)
PROVENANCES = st.builds(
    Provenance,
    *[TEXTS] * 3,
    st.none() | st.builds(Revision, TEXTS, st.booleans(), TEXTS),
    st.none() | st.builds(CiRun, *[TEXTS] * 6),
)


@st.composite
def results(draw: st.DrawFn) -> CheckResult:
    stack = clean().stacks[0]
    names = draw(st.lists(TEXTS, min_size=1, max_size=4))
    made = tuple(
        resource(
            "dev",
            name,
            draw(TEXTS),
            place=draw(
                st.sampled_from(["aws/me-central-1", "aws/eu-west-1", "global", ""]) | TEXTS
            ),
            data_class=draw(TEXTS),
            source=draw(st.none() | st.builds(Location, TEXTS, st.integers(-1, 9), TEXTS)),
        )
        for name in names
    )
    waiver = st.builds(
        WaiverUse, TEXTS, TEXTS, TEXTS, st.dates(date(2020, 1, 1), date(2100, 1, 1))
    )
    outcomes = tuple(
        Outcome(
            draw(st.sampled_from([*(each.id for each in clean().rules), "residency-newer"])),
            draw(st.sampled_from([each.urn for each in made]) | TEXTS),
            draw(TEXTS),
            draw(st.sampled_from(["violation", "indeterminate"])),
            draw(TEXTS),
            draw(st.sampled_from(["violation", "indeterminate", "advisory", "waived"])),
            draw(st.sampled_from(["critical", "low"])),
            draw(st.none() | waiver),
            draw(TEXTS),
        )
        for _ in range(draw(st.integers(0, 4)))
    )
    changed = replace(
        stack,
        name=draw(TEXTS),
        project=draw(TEXTS),
        resources=made,
        outcomes=outcomes,
        errors=tuple(draw(st.lists(TEXTS, max_size=2))),
        answered_by=draw(st.sampled_from(get_args(AnsweredBy))),
        other_providers=tuple(draw(st.lists(TEXTS, max_size=2))),
        not_modelled=tuple(draw(st.lists(TEXTS, max_size=2))),
        state_written=draw(st.none() | MOMENTS),
        pulumi_version=draw(TEXTS),
    )
    return replace(
        clean(),
        tool_version=draw(TEXTS),
        provenance=draw(PROVENANCES),
        packs=(PackDigest(draw(TEXTS), draw(TEXTS), draw(TEXTS)),),
        stacks=(changed,),
    )


@settings(max_examples=examples(20), deadline=None)
@given(results())
def test_every_report_is_sound(result: CheckResult) -> None:
    assert read_result(result.to_json()) == result
    assert [each.message for each in validator().iter_errors(json.loads(to_sarif(result)))] == []
    read = JUnitXml.fromstring(to_junit(result).encode())
    assert read.errors == len(result.stacks[0].errors)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", summarise(result))
    for language in LANGUAGES:
        text = evidence(result, language=language)
        outline = Outline(text)
        assert outline.open == []
        assert "script" not in outline.tags
        # Nothing that doesn't show, or turns what comes after it.
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", text)
