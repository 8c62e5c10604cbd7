"""``falaj preview``: asks the engine and the packs what ``up`` would do, and shows it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from falaj.policies.model import PolicyError
from falaj.policies.outcome import read_records
from falaj.stacks import costs, resources
from falaj.stacks.checking.check import begin, gathered
from falaj.stacks.checking.preview import document_of, opened, result_of, why
from falaj.stacks.checking.subject import Subject
from falaj.stacks.command import operation, preview_page
from falaj.stacks.command.console import say, width
from falaj.stacks.command.judged import judged, packs_of
from falaj.stacks.command.lifecycle import Call, not_finished
from falaj.stacks.command.project import StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, Settings

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
            said = list(read_records(records))
            found = result_of(subject, pulumi, document, said, len(packs_of(settings)))
        except PolicyError as error:
            raise StackError(str(error)) from None
    made = preview_page.Preview(
        call.stack, call.sandbox, place, document, gathered(beginning, [found]),
        costs.of(resources.of_preview(document), place, prices),
    )  # fmt: skip
    columns = min(width(), _WIDEST)
    say()
    say("\n".join(preview_page.lines(made, columns)))
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
