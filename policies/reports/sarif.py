"""Findings as SARIF 2.1.0, for code scanning and editors.

The format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/sarif-v2.1.0-errata01-os-complete.html
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from falaj.policies.reports.result import (
    CheckResult,
    Outcome,
    Provenance,
    ResourceResult,
    RuleRecord,
    StackResult,
)
from falaj.policies.reports.wording import Wording

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_LEVELS: Final = {"critical": "error", "high": "error", "medium": "warning", "low": "note"}
#: GitHub ranks by these numbers: over 9.0 critical, from 7.0 high, from 4.0 medium, else low.
_SCORES: Final = {"critical": "9.5", "high": "8.0", "medium": "5.5", "low": "2.0"}
#: Viewers refuse results without a file. Every project has this one.
_NO_FILE: Final = "Pulumi.yaml"
#: GitHub refuses rules with more tags.
_MOST_TAGS: Final = 20
#: A "%" without two digits after it: https://www.rfc-editor.org/rfc/rfc3986#section-2.1
_LONE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def to_sarif(result: CheckResult) -> str:
    """A result as SARIF: one run, with all rules and the findings of all stacks.

    Waived findings are there, suppressed. Those that can't be decided and only warn are of kind
    ``open``, and advice is a note. Fingerprints depend on rule, resource and property alone, so a
    finding stays the same when its line moves.
    """
    indices = {each.id: number for number, each in enumerate(result.rules)}
    rules = [_rule(each) for each in result.rules]
    found: list[dict[str, Any]] = []
    for stack in result.stacks:
        for outcome in stack.having("violation", "indeterminate", "advisory", "waived"):
            if outcome.rule not in indices:
                indices[outcome.rule] = len(rules)
                rules.append(_rule(result.rule(outcome)))
            found.append(_finding(result, stack, outcome, indices[outcome.rule]))
    run: dict[str, Any] = {
        "tool": {
            "driver": {
                "name": "Falaj",
                "version": result.tool_version,
                "rules": rules,
            },
            "extensions": [
                {"name": each.name, "version": each.version, "properties": {"sha256": each.sha256}}
                for each in result.packs
            ],
        },
        "automationDetails": {
            "id": "falaj-check/",
            "description": {"text": _answers(result)},
        },
        "invocations": [_invocation(result)],
        "results": found,
        "properties": {
            "answeredBy": result.answered_by,
            "stacks": [_stack(each) for each in result.stacks],
        },
    }
    if source := _version_control(result.provenance):
        run["versionControlProvenance"] = [source]
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def fingerprint(outcome: Outcome) -> str:
    """What stays the same of a finding from run to run."""
    parts = (outcome.rule, outcome.urn, outcome.path)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _answers(result: CheckResult) -> str:
    """What answered, for readers."""
    words = Wording("en")
    lines = [
        f"{each.project}/{each.name}: {words.plain(f'headline.{each.answered_by}')}"
        for each in result.stacks
    ]
    return "; ".join(lines) or words.plain("verdict.nothing")


def _stack(stack: StackResult) -> dict[str, Any]:
    written = stack.state_written
    found: dict[str, Any] = {
        "name": stack.name,
        "project": stack.project,
        "answeredBy": stack.answered_by,
        "otherProviders": list(stack.other_providers),
        "notModelled": list(stack.not_modelled),
        "resources": len(stack.resources),
        "judged": dict(sorted(stack.judged.items())),
        "programDigest": stack.program_digest,
        "stateDigest": stack.state_digest,
    }
    return found | ({"stateWritten": _utc(written)} if written else {})


def _version_control(provenance: Provenance) -> dict[str, Any] | None:
    """The commit, where the address of its repository is known: the format demands both."""
    ci, revision = provenance.ci, provenance.revision
    # The project may be of another repository than the one that the run was started for.
    if ci is None or revision is None or not revision.commit or revision.commit != ci.commit:
        return None
    if not ci.repository.startswith(("https://", "http://")):
        return None
    return {
        # What is quoted already stays as it is; a "%" that quotes nothing doesn't.
        "repositoryUri": quote(_LONE.sub("%25", ci.repository), safe="/:?&=%~+,;@"),
        "revisionId": revision.commit,
        "properties": {"changed": revision.changed},
    }


def _provenance(result: CheckResult) -> dict[str, Any]:
    """Who, where and with what, as far as the format has no names of its own for it."""
    found: dict[str, Any] = {
        "answeredBy": result.answered_by,
        "pythonVersion": result.provenance.python_version,
        "pulumiVersions": result.pulumi_versions,
    }
    if revision := result.provenance.revision:
        found["revision"] = asdict(revision)
    if ci := result.provenance.ci:
        found["ci"] = asdict(ci)
    return found


def _rule(rule: RuleRecord) -> dict[str, Any]:
    tags = ["security", rule.pack, *rule.controls] if rule.pack else ["security"]
    found: dict[str, Any] = {
        "id": rule.id,
        "name": "".join(part.capitalize() for part in rule.id.split("-")),
        "shortDescription": {"text": rule.title},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {
            "tags": list(dict.fromkeys(tags))[:_MOST_TAGS],
            "controls": list(rule.controls),
            "security-severity": _SCORES[rule.severity],
            "precision": "very-high",
        },
    }
    # GitHub shows no rule without a full description.
    found["fullDescription"] = {"text": f"{rule.title}. {rule.remediation}".strip()}
    if rule.remediation:
        serves = f"\n\nControls: {', '.join(rule.controls)}" if rule.controls else ""
        found["help"] = {
            "text": rule.remediation + serves,
            "markdown": f"**What to change.** {rule.remediation}{serves}",
        }
    return found


def _finding(
    result: CheckResult, stack: StackResult, outcome: Outcome, index: int
) -> dict[str, Any]:
    resource, rule = stack.resource(outcome), result.rule(outcome)
    identity = fingerprint(outcome)
    is_advice = outcome.status == "advisory"
    is_open = is_advice and outcome.kind == "indeterminate"
    level = "note" if is_advice else _LEVELS[outcome.severity]
    found: dict[str, Any] = {
        "ruleId": outcome.rule,
        "ruleIndex": index,
        # Of kind open, a level means nothing and has to be none.
        "kind": "open" if is_open else "fail",
        "level": "none" if is_open else level,
        "message": {"text": _message(resource, outcome, rule)},
        "locations": [_location(resource, outcome)],
        "fingerprints": {"falajFinding/v1": identity},
        # What GitHub compares; it would else hash the text around the line.
        "partialFingerprints": {"primaryLocationLineHash": f"{identity[:16]}:1"},
        "properties": {
            "stack": stack.name,
            "project": stack.project,
            "status": outcome.status,
            "finding": outcome.kind,
            "severity": outcome.severity,
            "resourceType": resource.type,
            "place": resource.place,
        },
    }
    if waiver := outcome.waiver:
        found["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": f"{waiver.reason} (waiver {waiver.id})",
                "properties": {
                    "waiver": waiver.id,
                    "approver": waiver.approver,
                    "expires": waiver.expires.isoformat(),
                },
            }
        ]
    return found


def _message(resource: ResourceResult, outcome: Outcome, rule: RuleRecord) -> str:
    unsure = "Can't be known: " if outcome.kind == "indeterminate" else ""
    where = f"{outcome.path}: " if outcome.path else ""
    note = f" ({outcome.note})" if outcome.note else ""
    text = f"{resource.type} '{resource.name}': {unsure}{where}{outcome.reason}{note}."
    return f"{text} {rule.remediation}".strip()


def _location(resource: ResourceResult, outcome: Outcome) -> dict[str, Any]:
    source = resource.source
    physical: dict[str, Any] = {
        "artifactLocation": {
            "uri": quote(source.file if source else _NO_FILE),
            "uriBaseId": "%SRCROOT%",
        }
    }
    if source and source.line > 0:
        physical["region"] = {"startLine": source.line}
    logical = [{"name": resource.name, "fullyQualifiedName": outcome.urn, "kind": "resource"}]
    if outcome.path:
        name = f"{outcome.urn}#{outcome.path}"
        logical.append({"name": outcome.path, "fullyQualifiedName": name, "kind": "property"})
    found: dict[str, Any] = {"physicalLocation": physical, "logicalLocations": logical}
    if source and source.key:
        found["message"] = {"text": f"configuration key {source.key}"}
    elif not source:
        found["message"] = {"text": "where the program declares it is not known"}
    return found


def _invocation(result: CheckResult) -> dict[str, Any]:
    notifications = [
        {"level": "error", "message": {"text": f"stack {stack.name}: {error}"}}
        for stack in result.stacks
        for error in stack.errors
    ]
    return {
        "executionSuccessful": not notifications and bool(result.stacks),
        "exitCode": result.exit_code,
        "account": result.provenance.user,
        "machine": result.provenance.host,
        "startTimeUtc": _utc(result.started),
        "endTimeUtc": _utc(result.finished),
        "toolExecutionNotifications": notifications,
        "properties": _provenance(result),
    }


def _utc(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
