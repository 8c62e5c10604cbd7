"""Checks what is there already: an exported state in a file, or a stack of the real backend."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from falaj.policies.configuration import Configuration, read_configuration
from falaj.policies.model import FindingKind, PolicyError, Rule
from falaj.policies.model.judge import Judge, Judgement
from falaj.policies.outcome import resource_entry
from falaj.policies.reports.result import AnsweredBy, Outcome, ResourceResult, StackResult
from falaj.policies.rules import all_rules, rules_of
from falaj.policies.state import stack_of_export, stack_of_states
from falaj.sandbox.activation import is_asked
from falaj.sandbox.prediction import made_in_sandbox
from falaj.stacks.checking.records import outcomes_of, resources_of
from falaj.stacks.checking.subject import Subject
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings
from falaj.stacks.settings.source import from_project_and_stack
from falaj.wire.documents import mapping


def check_file(path: Path, subject: Subject | None, *, strict: bool | None) -> StackResult:
    """Judge an exported state.

    Args:
        path: what `pulumi stack export` wrote.
        subject: the stack whose file says what is allowed. Default: the packs' defaults.
        strict: whether what can't be known fails. Default: as the stack says.

    Returns:
        The result; why the file can't be judged is in its `errors`, so that others still are.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return _check(json.loads(text), str(path), subject, "exported-state", strict)
    except (OSError, ValueError, RecursionError) as error:
        message = f"--state: {path} can't be read: {error}"
    except (StackError, PolicyError) as error:
        message = f"--state: {path}: {error}"
    return StackResult(str(path), "", "nobody", errors=(message,))


def check_live(subject: Subject, *, strict: bool | None) -> StackResult:
    """Judge what the real backend knows of a stack; nothing is changed.

    Returns:
        The result; why the stack can't be judged is in its `errors`, so that others still are.

    Raises:
        EngineError: there is no engine.
    """
    try:
        return _live(subject, strict)
    except (StackError, PolicyError) as error:
        name, project = subject.stack.name, subject.stack.project.name
        return StackResult(name, project, "nobody", errors=(str(error),))


def _live(subject: Subject, strict: bool | None) -> StackResult:
    pulumi = Pulumi(subject.stack)
    if not pulumi.exists():
        raise StackError(
            f"--live: the backend has no stack {subject.stack.name!r}\n"
            "  leave --live out to check its preview"
        )
    document = pulumi.exported()
    # A shell in the sandbox has the sandbox's backend for the real one.
    answered_by: AnsweredBy = "sandbox-state" if is_asked(pulumi.environment) else "backend"
    found = _check(document, f"stack {subject.stack.name}", subject, answered_by, strict)
    return replace(found, pulumi_version=str(pulumi.engine.version))


def _check(
    document: Any,
    source: str,
    subject: Subject | None,
    answered_by: AnsweredBy,
    strict: bool | None,
) -> StackResult:
    stack = stack_of_export(document, source)
    configuration = _configuration(subject, strict)
    rules = _rules(subject, configuration)
    judged: dict[str, list[Judgement]] = {}
    for each in Judge(rules, configuration.settings).evaluate_stack(stack):
        judged.setdefault(each.resource.urn, []).append(each)
    records = [
        {
            "kind": "resource",
            **resource_entry(resource, stack, judged.get(resource.urn, []), configuration),
        }
        for resource in stack.resources
    ]
    canonical = json.dumps(document, sort_keys=True).encode()
    return StackResult(
        stack.name or source,
        stack.project,
        "sandbox-state" if made_in_sandbox(document) else answered_by,
        state_digest=hashlib.sha256(canonical).hexdigest(),
        resources=tuple(resources_of(records, stack, subject)),
        outcomes=tuple(outcomes_of(records)),
        state_written=written_at(document),
    )


def judge_in_part(
    states: Sequence[Mapping[str, Any]], subject: Subject, *, strict: bool | None, folder: Path
) -> tuple[tuple[ResourceResult, ...], tuple[Outcome, ...]]:
    """Judge what a program had declared when it failed.

    Only what is certain of a resource by itself is found: what the rest of the stack would say of
    it, nobody knows.

    Args:
        states: of the resources, as a preview has them.
        subject: the stack.
        strict: whether what can't be known fails. Default: as the stack says.
        folder: the one that the engine's positions start from.

    Returns:
        Nothing where there was no resource yet.

    Raises:
        PolicyError: the states or the stack's settings can't be used.
    """
    stack = stack_of_states(states)
    if not any(each.custom for each in stack.resources):
        return (), ()
    configuration = _configuration(subject, strict)
    judge = Judge(_rules(subject, configuration), configuration.settings)
    records: list[dict[str, Any]] = []
    for each in stack.resources:
        certain = [
            replace(
                judged,
                findings=tuple(it for it in judged.findings if it.kind is FindingKind.VIOLATION),
            )
            for judged in judge.evaluate_resource(each)
        ]
        entry = resource_entry(each, stack, certain, configuration)
        records.append({"kind": "resource", **entry})
    return tuple(resources_of(records, stack, subject, folder)), tuple(outcomes_of(records))


def _rules(subject: Subject | None, configuration: Configuration) -> tuple[Rule, ...]:
    """Those of the packs that a stack lists, and the team's own for them; else all."""
    if subject is None or not isinstance(subject.settings, CloudSettings):
        return (*all_rules(), *configuration.rules)
    packs = subject.settings.policies.packs
    own = (each for each in configuration.rules if each.pack in packs)
    return (*(each for name in packs for each in rules_of(name)), *own)


def written_at(document: Any) -> datetime | None:
    """When the engine wrote an exported state, which is when the stack was last changed.

    None where the state doesn't say it, or says what no time is.
    """
    time = mapping(document["deployment"].get("manifest")).get("time")
    try:
        found = datetime.fromisoformat(time) if isinstance(time, str) else None
    except ValueError:
        return None
    # The engine writes the year 1 for a time that it doesn't have.
    return found if found and found.tzinfo and 1970 < found.year < 9000 else None


def _configuration(subject: Subject | None, strict: bool | None) -> Configuration:
    given: dict[str, Any] = {} if strict is None else {"strict": strict}
    if subject is None:
        return read_configuration(given, {}, Path.cwd())
    stack = subject.stack
    values = from_project_and_stack(stack.path, stack.project.root, namespace=stack.project.name)
    return read_configuration(given, _as_texts(values), stack.project.root)


def team_rules(subject: Subject) -> tuple[Rule, ...]:
    """A stack's own rules, for reports; none where its settings can't be used, which its check
    itself says."""
    try:
        return _configuration(subject, None).rules
    except (StackError, PolicyError):
        return ()


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """A stack's configuration as the engine hands it to packs."""
    return {
        key: value if isinstance(value, str) else json.dumps(value)
        for key, value in values.items()
    }
