"""What a check found, as data: written as JSON, read back, and made into every report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import AwareDatetime, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from falaj.components.catalogue.pod_rules import SeverityName
from falaj.policies.model import PolicyError, Rule
from falaj.wire.documents import is_dictionary

# Where a result comes from: who asked for it, on what machine, and from which commit.

CONFIG: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=CONFIG)
class Revision:
    """What version control says of the project whose program and settings were read.

    Attributes:
        commit: its id; empty where `problem` says why it isn't known.
        changed: whether files differ from that commit, or are not in it.
        problem: why git could not tell, in its words.
    """

    commit: str
    changed: bool = False
    problem: str = ""


@dataclass(frozen=True, config=CONFIG)
class CiRun:
    """The run of a CI system, as its variables describe it; what they don't say is empty.

    Attributes:
        system: the system's name.
        run: the run's number.
        url: where it can be seen.
        actor: who started it.
        commit: the commit that it was started for.
        repository: address of the repository.
    """

    system: str
    run: str = ""
    url: str = ""
    actor: str = ""
    commit: str = ""
    repository: str = ""


@dataclass(frozen=True, config=CONFIG)
class Provenance:
    """Who ran a check, and with what.

    Attributes:
        user: the account that ran it.
        host: the machine's own name.
        python_version: of the Python that ran it.
        revision: of the project; None where it isn't under version control, or none was read.
        ci: the CI's run; None where no known system ran it.
    """

    user: str
    host: str
    python_version: str
    revision: Revision | None = None
    ci: CiRun | None = None


#: What results of every version begin their schema with.
_FAMILY: Final = "falaj.check/"
#: Version of the JSON; another one is refused.
SCHEMA: Final = f"{_FAMILY}2"
CLEAN, VIOLATIONS, NOT_CHECKED = 0, 1, 2

Status = Literal["violation", "indeterminate", "advisory", "waived"]
#: What answered when a stack was judged. A sandbox's state may come from a file or a backend.
AnsweredBy = Literal[
    "sandbox",
    "sandbox-and-others",
    "sandbox-state",
    "machine",
    "cloud-preview",
    "exported-state",
    "backend",
    "nobody",
]
Encryption = Literal["customer-key", "provider-key", "none", "unknown", "not-applicable"]
#: Statuses that fail a check.
FAILING: Final[tuple[Status, ...]] = ("violation", "indeterminate")
SEVERITIES: Final[tuple[SeverityName, ...]] = get_args(SeverityName)

#: A moment with its time zone, of which every form of it can be written.
Moment = Annotated[
    AwareDatetime,
    Field(ge=datetime(1970, 1, 1, tzinfo=UTC), le=datetime(9000, 1, 1, tzinfo=UTC)),
]


@dataclass(frozen=True, config=CONFIG)
class Location:
    """Where a resource was declared."""

    file: str
    """Relative to the project, with forward slashes."""
    line: int = 0
    """From 1; 0 where not known."""
    key: str = ""
    """The key of the stack's configuration that made the resource, where one did."""

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place} ({self.key})" if self.key else place


@dataclass(frozen=True, config=CONFIG)
class PackDigest:
    """A policy pack and the digest of what it is made of."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True, config=CONFIG)
class RuleRecord:
    """A rule as it was when it judged."""

    id: str
    pack: str
    title: str
    severity: SeverityName
    controls: tuple[str, ...]
    remediation: str

    @classmethod
    def of(cls, rule: Rule) -> RuleRecord:
        """The record of a rule."""
        return cls(
            rule.id,
            rule.pack,
            rule.title,
            rule.severity.value,
            rule.controls,
            rule.remediation,
        )


@dataclass(frozen=True, config=CONFIG)
class ResourceResult:
    """A resource that was judged.

    Attributes:
        urn: its URN.
        type: its type as the engine writes it.
        name: its logical name.
        place: such as ``aws/me-central-1``; ``global``; ``unknown``; empty where it has none.
        encryption: whose key encrypts it at rest.
        data_class: class of its data; empty where it holds none.
        source: where it was declared, where known.
        rules: ids of the rules that judged it.
    """

    urn: str
    type: str
    name: str
    place: str = ""
    encryption: Encryption = "not-applicable"
    data_class: str = ""
    source: Location | None = None
    rules: tuple[str, ...] = ()


@dataclass(frozen=True, config=CONFIG)
class WaiverUse:
    """A waiver that covered a finding."""

    id: str
    approver: str
    reason: str
    expires: date


@dataclass(frozen=True, config=CONFIG)
class Outcome:
    """One finding, and what became of it.

    Attributes:
        rule: id of the rule.
        urn: the resource's URN.
        path: the property; empty for the resource itself.
        kind: whether the rule was certain.
        reason: a clause without a full stop.
        status: ``violation`` and ``indeterminate`` fail the check, ``advisory`` warns, ``waived``
            is covered by `waiver`.
        severity: of the rule.
        waiver: what covered it.
        note: why a waiver that is about it doesn't cover it.
    """

    rule: str
    urn: str
    path: str
    kind: Literal["violation", "indeterminate"]
    reason: str
    status: Status
    severity: SeverityName
    waiver: WaiverUse | None = None
    note: str = ""

    @property
    def fails(self) -> bool:
        """Whether it fails the check."""
        return self.status in FAILING


@dataclass(frozen=True, config=CONFIG)
class StackResult:
    """What was found in one stack.

    Attributes:
        name: the stack's.
        project: the project's.
        answered_by: ``sandbox``: its stand-ins, in a preview; ``sandbox-and-others``: they, and
            providers that are not its own; ``sandbox-state``: a state that they wrote before;
            ``machine``: Falaj's provider for this machine, in a preview; ``cloud-preview``: the
            clouds' own providers, in a preview; ``exported-state``: a file; ``backend``: what the
            real backend has on record; ``nobody``: it could not be checked.
        other_providers: names of the providers that answered in a preview beside the sandbox's.
        not_modelled: names of packages that the sandbox knows by their SDK's types alone, so that
            their resources are judged by their inputs only.
        program_digest: SHA-256 of the program and its settings; empty where none was run.
        state_digest: SHA-256 of the state; empty for a preview of a new stack.
        state_written: when the engine wrote that state; None where it doesn't say.
        pulumi_version: of the engine that was asked; empty where none was.
        resources: all that were judged.
        outcomes: all findings.
        errors: why it could not be checked, or not wholly; empty where it was.
    """

    name: str
    project: str
    answered_by: AnsweredBy
    program_digest: str = ""
    state_digest: str = ""
    resources: tuple[ResourceResult, ...] = ()
    outcomes: tuple[Outcome, ...] = ()
    errors: tuple[str, ...] = ()
    other_providers: tuple[str, ...] = ()
    state_written: Moment | None = None
    pulumi_version: str = ""
    not_modelled: tuple[str, ...] = ()

    @cached_property
    def judged(self) -> Mapping[str, int]:
        """How many resources each rule judged, by the rule's id; rules with none are left out."""
        return Counter(identity for each in self.resources for identity in set(each.rules))

    @cached_property
    def by_urn(self) -> Mapping[str, ResourceResult]:
        """Resources by URN."""
        return {each.urn: each for each in self.resources}

    def resource(self, outcome: Outcome) -> ResourceResult:
        """The resource of a finding; one made up of its URN where it is not listed."""
        found = self.by_urn.get(outcome.urn)
        if found is None:
            # urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME
            parts = outcome.urn.split("::", 3)
            kind = parts[2].rpartition("$")[2] if len(parts) == 4 else ""
            found = ResourceResult(outcome.urn, kind, parts[-1])
        return found

    def having(self, *statuses: Status) -> list[Outcome]:
        """Findings with one of these statuses, worst first."""
        found = [each for each in self.outcomes if each.status in statuses]
        return sorted(found, key=order)


@dataclass(frozen=True, config=CONFIG)
class CheckResult:
    """What a check of some stacks found.

    Attributes:
        started: when it began, with its time zone.
        finished: when it ended.
        tool_version: Falaj's.
        provenance: who ran it, and from which commit.
        packs: the packs that judged.
        stacks: the stacks, in the order in which they were asked for.
        rules: every rule that could judge.
    """

    started: Moment
    finished: Moment
    tool_version: str
    provenance: Provenance
    packs: tuple[PackDigest, ...]
    stacks: tuple[StackResult, ...]
    rules: tuple[RuleRecord, ...] = ()

    @property
    def answered_by(self) -> list[AnsweredBy]:
        """What answered, each once, in the order of the stacks."""
        return list(dict.fromkeys(each.answered_by for each in self.stacks))

    @property
    def pulumi_versions(self) -> list[str]:
        """Versions of the engines that were asked; none where only files were read."""
        return sorted({each.pulumi_version for each in self.stacks} - {""})

    @cached_property
    def judged(self) -> Mapping[str, int]:
        """How many resources of all stacks each rule judged; rules with none are left out."""
        return sum((Counter(each.judged) for each in self.stacks), Counter[str]())

    @cached_property
    def rule_by_id(self) -> Mapping[str, RuleRecord]:
        """Rules by id."""
        return {each.id: each for each in self.rules}

    def rule(self, outcome: Outcome) -> RuleRecord:
        """The rule of a finding; one with its id alone where it is not listed."""
        return self.rule_by_id.get(outcome.rule) or RuleRecord(
            outcome.rule, "", outcome.rule, outcome.severity, (), ""
        )

    @property
    def exit_code(self) -> int:
        """0 clean, 1 violations, 2 could not check.

        A violation that was found is certain, whatever else could not be checked: 1 goes before
        2. Without any stack nothing was checked.
        """
        if any(each.fails for stack in self.stacks for each in stack.outcomes):
            return VIOLATIONS
        if not self.stacks or any(stack.errors for stack in self.stacks):
            return NOT_CHECKED
        return CLEAN

    def to_json(self) -> str:
        """As JSON text, with `SCHEMA`."""
        text = _ADAPTER.dump_json(self, exclude_defaults=True).decode()
        return f'{{"schema":"{SCHEMA}",{text[1:]}'


_ADAPTER: Final = TypeAdapter(CheckResult)


def read_result(text: str, source: str = "the result") -> CheckResult:
    """A result from its JSON. Raises PolicyError naming the source, and what is wrong with it."""
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{source} isn't JSON: {error}") from None
    # A first look, so that another version is named as such and not by the keys it lacks.
    schema = document.pop("schema", None) if is_dictionary(document) else None
    if schema != SCHEMA:
        if isinstance(schema, str) and schema.startswith(_FAMILY):
            raise PolicyError(
                f"{source} was written by another version of Falaj: given {schema}; allowed: "
                f"{SCHEMA}\n  what it doesn't say can't be made up: run `falaj check` again"
            )
        raise PolicyError(f"{source} isn't a result of `falaj check` ({SCHEMA}); run it again")
    try:
        return _ADAPTER.validate_python(document)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(str(part) for part in first["loc"])
        raise PolicyError(f"{source} can't be read: {at}: {first['msg']}") from None


def order(outcome: Outcome) -> tuple[int, bool, str, str, str]:
    """For sorting findings: worst first, then by rule and resource."""
    worst = SEVERITIES.index(outcome.severity)
    return worst, outcome.kind != "violation", outcome.rule, outcome.urn, outcome.path


def count(outcomes: Iterable[Outcome]) -> dict[Status, int]:
    """How many findings have each status."""
    found: dict[Status, int] = {"violation": 0, "indeterminate": 0, "advisory": 0, "waived": 0}
    for each in outcomes:
        found[each.status] += 1
    return found
