"""How the policy packs judge an update before it begins."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from falaj.policies.configuration import PROJECT_FOLDER
from falaj.policies.reports.summary import summarise
from falaj.stacks.checking.check import check_now
from falaj.stacks.checking.subject import Subject
from falaj.stacks.command.console import say
from falaj.stacks.command.packs import pack_folders
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, Settings


@contextmanager
def judged(
    stack: StackFile, settings: Settings, pulumi: Pulumi
) -> Generator[tuple[list[str], Mapping[str, str]]]:
    """Arguments and variables of the engine with which the packs judge what it is about to do.

    In the sandbox a preview foresees what an update would bring, so that nothing is unknown. A
    real cloud's preview can't: there the stack is first checked in the sandbox, whole and as
    strictly as it says; the packs then judge the real preview as far as it knows, and every
    resource with its real values right before it is made.

    Raises:
        StackError: the stack doesn't meet the policies, or could not be checked.
    """
    if not isinstance(settings, CloudSettings):
        yield [], {}
        return
    folders = pack_folders(settings.policies.packs)
    arguments = [part for folder in folders for part in ("--policy-pack", str(folder))]
    # The engine tells packs no folder, and the paths of waivers start from the project's.
    project = {PROJECT_FOLDER: str(stack.project.root)}
    if pulumi.sandbox:
        with pulumi.foreseeing() as variables:
            yield arguments, {**variables, **project}
        return
    _require_clean(Subject(stack, settings))
    with tempfile.TemporaryDirectory(prefix="falaj-packs-") as folder:
        configuration = Path(folder) / "packs.json"
        configuration.write_text(json.dumps({"settings": {"strict": False}}), encoding="utf-8")
        given = [part for _ in folders for part in ("--policy-pack-config", str(configuration))]
        yield [*arguments, *given], project


def _require_clean(subject: Subject) -> None:
    say(f"checking {subject.stack.name} by the policy packs, in the sandbox")
    result = check_now([subject])
    if result.exit_code != 0:
        say(summarise(result))
        raise StackError(
            f"stack {subject.stack.name} doesn't meet its policies; nothing was begun\n"
            "  put right what is named above, or see it again with: "
            f"falaj check --stack {subject.stack.name}"
        )
