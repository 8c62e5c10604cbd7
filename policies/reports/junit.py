"""Findings as JUnit XML, for the test views of CI systems.

One suite a stack and one case a rule: a case for each resource as well would be tens of thousands
in a stack of a thousand resources, which no test view shows well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Final
from xml.etree import ElementTree

from falaj.policies.reports.result import CheckResult, Outcome, RuleRecord, StackResult
from falaj.policies.reports.wording import Wording

#: Findings that a failure spells out; a test view is no place for more.
MOST_LISTED: Final = 100
#: What XML 1.0 can't hold, even escaped: https://www.w3.org/TR/xml/#charsets
_NOT_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(result: CheckResult) -> str:
    """A result as JUnit XML.

    A rule with findings that fail is a failure, one whose findings are all waived is skipped, and
    a stack that could not be checked has an error. Rules that judged nothing are left out.
    """
    root = ElementTree.Element("testsuites", name="falaj check")
    for stack in result.stacks:
        root.append(_suite(result, stack))
    totals = {
        key: sum(int(suite.attrib[key]) for suite in root)
        for key in ("tests", "failures", "errors", "skipped")
    }
    seconds = (result.finished - result.started).total_seconds()
    root.attrib.update({key: str(each) for key, each in totals.items()}, time=f"{seconds:.3f}")
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(result: CheckResult, stack: StackResult) -> ElementTree.Element:
    judged = dict(stack.judged)
    found: dict[str, list[Outcome]] = {}
    for outcome in stack.having("violation", "indeterminate", "advisory", "waived"):
        found.setdefault(outcome.rule, []).append(outcome)
        judged.setdefault(outcome.rule, 0)
    records = [each for each in result.rules if each.id in judged]
    # Findings of rules that the result doesn't list still show.
    listed = {each.id for each in records}
    records += [result.rule(each[0]) for key, each in found.items() if key not in listed]
    cases = [_case(stack, each, judged[each.id], found.get(each.id, ())) for each in records] + [
        _broken(stack, error) for error in stack.errors
    ]
    counts = {
        name: str(sum(1 for case in cases if case.find(tag) is not None))
        for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))
    }
    attributes = {
        "name": _clean(f"{stack.project}/{stack.name}"),
        "timestamp": result.started.strftime("%Y-%m-%dT%H:%M:%S"),
        "hostname": _clean(result.provenance.host),
        "tests": str(len(cases)),
        **counts,
    }
    suite = ElementTree.Element("testsuite", attributes)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in _properties(result, stack).items():
        if value:
            given = {"name": _clean(name), "value": _clean(value)}
            ElementTree.SubElement(properties, "property", given)
    suite.extend(cases)
    return suite


def _properties(result: CheckResult, stack: StackResult) -> dict[str, str]:
    """What a suite says of itself; an empty value is nothing known."""
    provenance, written = result.provenance, stack.state_written
    revision, ci = provenance.revision, provenance.ci
    found = {
        "answeredBy": stack.answered_by,
        "answer": Wording("en").plain(f"headline.{stack.answered_by}"),
        "otherProviders": ", ".join(stack.other_providers),
        "notModelled": ", ".join(stack.not_modelled),
        "programDigest": stack.program_digest,
        "stateDigest": stack.state_digest,
        "stateWritten": written.isoformat() if written else "",
        "started": result.started.isoformat(),
        "finished": result.finished.isoformat(),
        "user": provenance.user,
        "host": provenance.host,
        "falaj": result.tool_version,
        "pulumi": stack.pulumi_version,
        "python": provenance.python_version,
    }
    if revision:
        tree = ("changed" if revision.changed else "clean") if revision.commit else ""
        found |= {
            "commit": revision.commit, "workingTree": tree, "commitUnknown": revision.problem,
        }  # fmt: skip
    if ci:
        found |= {f"ci.{name}": value for name, value in asdict(ci).items()}
    return found | {
        f"pack.{each.name}": f"{each.version} sha256:{each.sha256}" for each in result.packs
    }


def _case(
    stack: StackResult, rule: RuleRecord, judged: int, outcomes: Sequence[Outcome]
) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase",
        classname=_clean(".".join((stack.name, rule.pack or "unknown"))),
        name=_clean(f"{rule.id}: {rule.title}"),
        time="0",
    )
    failing = [each for each in outcomes if each.fails]
    waived = [each for each in outcomes if each.status == "waived"]
    source = next(
        (found for each in failing if (found := stack.resource(each).source) is not None), None
    )
    if source:
        case.attrib["file"] = _clean(source.file)
    if failing:
        number = len({each.urn for each in failing})
        failure = ElementTree.SubElement(
            case, "failure", type=rule.severity,
            message=_clean(f"{number} of {max(judged, number)} resources: {failing[0].reason}"),
        )  # fmt: skip
        failure.text = _clean(_listing(stack, failing, rule.remediation))
    elif waived:
        ElementTree.SubElement(
            case, "skipped", message=_clean(f"{len(waived)} waived: {_waivers(waived)}")
        )
    notes = [each for each in outcomes if not each.fails]
    output = ElementTree.SubElement(case, "system-out")
    output.text = _clean(_listing(stack, notes, "") or f"{judged} resources judged")
    return case


def _broken(stack: StackResult, error: str) -> ElementTree.Element:
    case = ElementTree.Element(
        "testcase", classname=_clean(f"{stack.name}.check"), name="the stack can be checked",
        time="0",
    )  # fmt: skip
    ElementTree.SubElement(case, "error", type="not-checked", message=_clean(error))
    return case


def _listing(stack: StackResult, outcomes: Sequence[Outcome], remediation: str) -> str:
    lines: list[str] = []
    for each in outcomes[:MOST_LISTED]:
        resource = stack.resource(each)
        where = f" ({resource.source})" if resource.source else ""
        path = f"{each.path}: " if each.path else ""
        note = f" ({each.note})" if each.note else ""
        state = "" if each.status == "violation" else f"[{each.status}] "
        lines.append(f"{state}{resource.type} '{resource.name}'{where}: {path}{each.reason}{note}")
    if len(outcomes) > MOST_LISTED:
        lines.append(f"and {len(outcomes) - MOST_LISTED} more")
    if remediation:
        lines.append(remediation)
    return "\n".join(lines)


def _waivers(outcomes: Sequence[Outcome]) -> str:
    return "; ".join(
        dict.fromkeys(
            f"{each.waiver.id} by {each.waiver.approver} until {each.waiver.expires}"
            for each in outcomes
            if each.waiver
        )
    )


def _clean(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
