"""How the policy packs judge an update before it begins."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from falaj.policies.choices import PACKS
from falaj.policies.variables import PROJECT_FOLDER, RECORD_FOLDER
from falaj.stacks.command.console import say
from falaj.stacks.command.packs import pack_configuration, pack_folders
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, Settings


@contextmanager
def judged(
    stack: StackFile,
    settings: Settings,
    pulumi: Pulumi,
    *,
    records: Path | None = None,
    waivers: Sequence[Mapping[str, Any]] = (),
) -> Generator[tuple[list[str], Mapping[str, str]]]:
    """Arguments and variables of the engine with which the packs judge what it is about to do.

    In the sandbox a preview predicts what an update would bring, so that nothing is unknown. A
    real cloud's preview can't: there the stack is first checked in the sandbox, whole and as
    strictly as it says; the packs then judge the real preview as far as it knows, and every
    resource with its real values right before it is made.

    Args:
        stack: the stack.
        settings: what its file says.
        pulumi: the engine.
        records: a folder that packs write to instead of refusing what they find, so that a preview
            comes to its end. A stack of one machine is judged in previews only.
        waivers: entries of a file of waivers that hold beside the stack's own. Default: none.

    Raises:
        StackError: the stack doesn't meet the policies, or could not be checked.
    """
    clouds = isinstance(settings, CloudSettings)
    if not clouds and records is None:
        yield [], {}
        return
    if clouds and not pulumi.sandbox:
        _require_clean(stack, settings)
    # The engine tells packs no folder, and the paths of waivers start from the project's.
    variables = {PROJECT_FOLDER: str(stack.project.root)}
    if records is not None:
        variables[RECORD_FOLDER] = str(records)
    strict = False if clouds and not pulumi.sandbox else None
    with (
        tempfile.TemporaryDirectory(prefix="falaj-packs-") as folder,
        pulumi.predicting() as prediction,
    ):
        configuration = Path(folder) / "packs.json"
        waived = with_more_waivers(stack, settings, waivers, Path(folder)) if waivers else None
        options = pack_configuration(advisory=records is not None, strict=strict, waivers=waived)
        configuration.write_text(json.dumps(options), encoding="utf-8")
        arguments: list[str] = []
        for pack in packs_of(settings):
            arguments += ["--policy-pack", str(pack), "--policy-pack-config", str(configuration)]
        yield arguments, {**variables, **prediction}


def with_more_waivers(
    stack: StackFile, settings: Settings, more: Sequence[Mapping[str, Any]], folder: Path
) -> Path:
    """A file of the stack's own waivers and more.

    Args:
        stack: the stack.
        settings: what its file says.
        more: further entries.
        folder: where the file goes.

    Raises:
        PolicyError: the stack's own can't be read.
    """
    named = settings.policies.waivers if isinstance(settings, CloudSettings) else None
    own: list[Any] = []
    if named:
        from falaj.policies.waivers import read_entries  # noqa: PLC0415 - with all of rules

        own = read_entries(stack.project.root / named)
    path = folder / "waivers.yaml"
    path.write_text(yaml.safe_dump({"waivers": [*own, *map(dict, more)]}), encoding="utf-8")
    return path


def packs_of(settings: Settings) -> list[Path]:
    """The folders of the packs that judge a stack."""
    names = settings.policies.packs if isinstance(settings, CloudSettings) else PACKS
    return pack_folders(names)


def _require_clean(stack: StackFile, settings: Settings) -> None:
    # Rules and reports, which updates in the sandbox and of one machine need none of.
    from falaj.policies.reports.summary import summarise  # noqa: PLC0415
    from falaj.stacks.checking.check import check_now  # noqa: PLC0415
    from falaj.stacks.checking.subject import Subject  # noqa: PLC0415

    subject = Subject(stack, settings)
    say(f"checking {subject.stack.name} by the policy packs, in the sandbox")
    result = check_now([subject])
    if result.exit_code != 0:
        say(summarise(result))
        raise StackError(
            f"stack {subject.stack.name} doesn't meet its policies; nothing was begun\n"
            "  put right what is named above, or see it again with: "
            f"falaj check --stack {subject.stack.name}"
        )
