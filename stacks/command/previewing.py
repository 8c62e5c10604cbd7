"""``falaj preview``: asks the engine and the packs what ``up`` would do, and shows it."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.policies.model import PolicyError
from falaj.policies.outcome import read_records
from falaj.policies.reports.result import CheckResult, StackResult
from falaj.policies.reports.result import count as count_outcomes
from falaj.policies.reports.summary import summarise
from falaj.stacks import costs, resources
from falaj.stacks.checking.check import begin, gathered
from falaj.stacks.checking.preview import document_of, opened, result_of, why
from falaj.stacks.checking.subject import Subject
from falaj.stacks.command import operation, project
from falaj.stacks.command.call import Call
from falaj.stacks.command.console import say, width
from falaj.stacks.command.judged import judged, packs_of
from falaj.stacks.command.lifecycle import not_finished
from falaj.stacks.command.operation import UNCHANGED, label_of_urn
from falaj.stacks.command.project import StackFile
from falaj.stacks.costs import report
from falaj.stacks.errors import StackError
from falaj.stacks.lettering import clean, wrap
from falaj.stacks.settings import CloudSettings, Settings
from falaj.wire.documents import sequence

# The page of ``falaj preview``: places, machines, costs, changes, the verdict, what is next.

#: Columns of the names of its parts.
_LABEL: Final = 10
#: Changes that are named, where not everything is new.
_MOST_CHANGES: Final = 10
_OPS: Final[Mapping[str, str]] = {
    "create": "+", "update": "~", "delete": "-", "import": "=",
    "replace": "+-", "create-replacement": "+-",
}  # fmt: skip


@dataclass(frozen=True)
class Preview:
    """What a preview found."""

    stack: StackFile
    sandbox: bool
    """Whether the call asks for the sandbox, as its next commands then do."""
    place: str
    """Where the stack goes; empty where that is this machine."""
    document: Mapping[str, Any]
    """What the engine wrote."""
    result: CheckResult
    """What the packs found."""
    costs: costs.Costs

    @property
    def judged(self) -> StackResult:
        """What the packs found in the stack."""
        return self.result.stacks[0]

    @property
    def fails(self) -> bool:
        """Whether the packs found what must not be."""
        return any(each.fails for each in self.judged.outcomes)

    @property
    def changes(self) -> Mapping[str, int]:
        """Steps by kind, as the engine counted them."""
        return self.document.get("changeSummary") or {}


def lines(made: Preview, columns: int) -> Iterator[str]:
    """The page, in lines of so many columns; what packs found is listed below the verdict."""
    parts: list[tuple[str, Iterable[str]]] = [
        ("Places", _places(made)),
        ("Machines", _machines(made.costs)),
        ("Costs", _costs(made)),
        ("Changes", _changes(made)),
        ("Policies", _policies(made.judged)),
    ]
    yield from wrap(clean(_title(made)), columns)
    for label, texts in parts:
        yield from _part(label, texts, columns)
    if made.judged.outcomes:
        yield ""
        yield summarise(made.result, width=columns).rstrip("\n")
        yield ""
    yield from _part("Next", _next(made), columns)


def _part(label: str, texts: Iterable[str], columns: int) -> Iterator[str]:
    first = label.ljust(_LABEL)
    for text in texts:
        yield from wrap(clean(text), columns, first, " " * (_LABEL + 2))
        first = " " * _LABEL


def _title(made: Preview) -> str:
    where = f" in {made.place}" if made.place else " on this machine"
    sandboxed = ", in the sandbox: nothing real is read or made"
    is_sandboxed = made.judged.answered_by.startswith("sandbox")
    return f"Preview of stack {made.stack.name}{where}{sandboxed if is_sandboxed else ''}"


def _places(made: Preview) -> Iterator[str]:
    places = Counter(each.place for each in made.judged.resources if each.place)
    if not places:
        yield made.place or "this machine"
        return
    yield ", ".join(f"{place} ({_number(places[place], 'resource')})" for place in sorted(places))


def _machines(found: costs.Costs) -> Iterator[str]:
    machines = report.groups(each for each in found.lines if each.charge.is_machines)
    for each in machines:
        yield f"{each.description()}: {each.cost}"
    if found.runs_on_machines_of_others:
        yield "those of the cluster, which aren't in this stack"
    elif not machines:
        yield "none"


def _costs(made: Preview) -> Iterator[str]:
    found = made.costs
    if not made.place:
        yield "nothing: it runs on this machine"
        return
    yield report.sums(found.total)
    if unknown := report.labels(found.unknown):
        yield f"without {_number(len(unknown), 'price')} that nobody knows: {'; '.join(unknown)}"
    if by_use := report.labels(found.by_use):
        yield f"and what is charged by use: {'; '.join(by_use)}"
    if found.unclassified:
        kinds = dict.fromkeys(each.type for each in found.unclassified)
        yield f"not known whether they cost: {'; '.join(kinds)}"


def _changes(made: Preview) -> Iterator[str]:
    yield operation.counted(made.changes, planned=True)
    if set(made.changes) <= {"create"}:
        return
    # What is replaced has several steps: its kind and name say it once.
    steps = dict.fromkeys(
        f"{_OPS[step['op']]} {label_of_urn(step['urn'])}{_differs(step)}"
        for step in sequence(made.document.get("steps"))
        if step["op"] in _OPS and step["op"] not in UNCHANGED
    )
    yield from list(steps)[:_MOST_CHANGES]
    if len(steps) > _MOST_CHANGES:
        yield f"and {len(steps) - _MOST_CHANGES} more (--details)"


def _differs(step: Mapping[str, Any]) -> str:
    keys: list[str] = step.get("replaceReasons") or step.get("diffReasons") or []
    return f": {', '.join(keys)}" if keys else ""


def _policies(found: StackResult) -> Iterator[str]:
    counts = count_outcomes(found.outcomes)
    failing = counts["violation"]
    verdict = _number(failing, "violation") if failing else "no violations"
    if counts["indeterminate"]:
        verdict += f", {counts['indeterminate']} undecided, which fails as well"
    if counts["advisory"]:
        verdict += f", {counts['advisory']} undecided, which only warns"
    if counts["waived"]:
        verdict += f", {counts['waived']} waived"
    rules, judged_ = _number(len(found.judged), "rule"), _number(len(found.resources), "resource")
    yield f"{verdict}: {rules} judged {judged_}"


def _next(made: Preview) -> Iterator[str]:
    stack = made.stack
    call = project.falaj("preview", stack) + (" --sandbox" if made.sandbox else "")
    if made.fails:
        again = project.command("preview", stack, sandbox=made.sandbox)
        yield f"put right what is named above, then {again}"
    elif operation.is_change(made.changes):
        yield project.command("up", stack, sandbox=made.sandbox)
    else:
        yield f"nothing: stack {stack.name} is as its file says"
    yield f"every resource and property: {call} --details"
    if made.place:
        yield f"every line of the costs: {call} --costs"
    if made.costs.unknown:
        yield f"fill in prices: {call} --unknown-prices prices.yaml"


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


#: Columns of the page where nobody looks at it on a terminal, and at most.
_WIDEST: Final = 100
#: Another form of the engine's answer, which can't be read (`PULUMI_ENABLE_STREAMING_JSON_PREVIEW`
#: is a person's setting for their own programs).
_ONE_DOCUMENT: Final = {"PULUMI_ENABLE_STREAMING_JSON_PREVIEW": "false"}


def details(call: Call) -> int:
    """Show every resource and property, as the engine itself shows a preview."""
    settings = call.settings()
    pulumi, _ = opened(Subject(call.stack, settings), sandbox=call.sandboxed(settings))
    with judged(call.stack, settings, pulumi) as (packs, environment):
        arguments = ["preview", *packs, "-s", call.stack.name]
        outcome = operation.shown_by_the_engine(pulumi, arguments, environment)
    return 0 if outcome.status == 0 else not_finished(call, "preview", outcome)


def page(call: Call, *, every_cost: bool, unknown_prices: Path | None) -> int:
    """Preview a stack and show it on one screen; returns the exit status.

    Args:
        call: the stack.
        every_cost: whether to list what the costs are made of.
        unknown_prices: where a price file goes that has a row for each unknown price.

    Raises:
        StackError: the stack can't be previewed, or a file can't be read or written.
    """
    settings = call.settings()
    prices = _prices(call.stack, settings)
    if unknown_prices is not None and unknown_prices.exists():
        raise StackError(
            f"--unknown-prices: {unknown_prices} exists already; give the name of a new file"
        )
    subject = Subject(call.stack, settings)
    pulumi, place = opened(subject, sandbox=call.sandboxed(settings))
    beginning = begin([subject])
    with tempfile.TemporaryDirectory(prefix="falaj-preview-") as temporary:
        records = Path(temporary)
        with judged(call.stack, settings, pulumi, records=records) as (packs, environment):
            # What stays as it is belongs to the stack as well: it costs, and it is judged.
            arguments = ["preview", "--json", "--show-sames", *packs, "-s", call.stack.name]
            variables = {**environment, **_ONE_DOCUMENT}
            outcome = operation.run(pulumi, arguments, "previewing", variables, read=True)
        document = document_of(outcome.printed)
        if outcome.status != 0 or document is None:
            if not outcome.explained and not outcome.was_interrupted:
                raise StackError(why(document, outcome.printed))
            return not_finished(call, "preview", outcome)
        try:
            recorded = list(read_records(records))
            found = result_of(subject, pulumi, document, recorded, len(packs_of(settings)))
        except PolicyError as error:
            raise StackError(str(error)) from None
    made = Preview(
        call.stack, call.sandbox, place, document, gathered(beginning, [found]),
        costs.of(resources.of_preview(document), place, prices),
    )  # fmt: skip
    columns = min(width(), _WIDEST)
    say()
    say("\n".join(lines(made, columns)))
    if every_cost:
        say()
        say(made.costs.as_text(columns).rstrip("\n"))
    if unknown_prices is not None:
        _write(unknown_prices, made.costs.as_price_file())
    return 1 if made.fails else 0


def _prices(stack: StackFile, settings: Settings) -> costs.Prices:
    if not isinstance(settings, CloudSettings) or settings.prices is None:
        return costs.NO_PRICES
    return costs.read_prices(stack.project.root / settings.prices)


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise StackError(f"--unknown-prices: {path} can't be written: {error.strerror}") from None
    say(f"prices to fill in: {path}; then name it in the stack's file as falaj:prices")
