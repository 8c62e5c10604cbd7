"""Previews one stack with all its packs, and makes a result of what they wrote."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast

from falaj.engine.debug_lines import LEFT_OUT
from falaj.policies.model import PACKS, PolicyError
from falaj.policies.outcome import read_records
from falaj.policies.reports.result import AnsweredBy, StackResult
from falaj.policies.state import readable, stack_of_states
from falaj.policies.variables import PROJECT_FOLDER, RECORD_FOLDER
from falaj.sandbox import refusals, sdks
from falaj.sandbox.models import PACKAGES
from falaj.sandbox.sdks import SDKS
from falaj.stacks.checking.assumed import missing_values
from falaj.stacks.checking.ground import import_predicted, make_predicted
from falaj.stacks.checking.recorded import judge_in_part
from falaj.stacks.checking.records import outcomes_of, resources_of
from falaj.stacks.checking.subject import Subject
from falaj.stacks.command import operation
from falaj.stacks.command.cloud import bring_up_upstream, prepare_cloud, update_in_sandbox
from falaj.stacks.command.packs import pack_configuration, pack_folders
from falaj.stacks.command.project import StackFile
from falaj.stacks.command.pulumi import Pulumi
from falaj.stacks.errors import StackError
from falaj.stacks.sandbox_guard import PHASE_VARIABLE
from falaj.stacks.settings import CloudSettings
from falaj.wire import PROVIDER
from falaj.wire.documents import mapping, sequence

#: What the engine says of all else when one resource was refused.
_CANCELLED: Final = "context canceled"
_INSTEAD: Final = (
    "judge what is really there instead: falaj check --live --stack NAME, or the file that "
    "`pulumi stack export --file FILE` writes with: falaj check --state FILE --stack NAME"
)
#: What to do, by what the engine says of programs that need more than themselves.
_HINTS: Final[Mapping[str, str]] = {
    "unknown stack": f"the sandbox has no stacks of others that a program refers to; {_INSTEAD}",
    "No module named": (
        "the program's own environment lacks it, or isn't there: make it with `pulumi install` in "
        "the program's folder"
    ),
    "organization name must be": (
        "the sandbox's backend has no organizations: where the name of another stack is a value "
        "of the configuration, give it as organization/PROJECT/STACK"
    ),
    "does not exist": f"the sandbox has nothing that a program reads or imports; {_INSTEAD}",
}
#: Variables by which a person changes what the engine's commands do: `PULUMI_OPTION_TARGET` would
#: leave resources out of the preview, as would a phase of the stack's own, and another form of
#: output can't be read.
_CHANGES_COMMANDS: Final = (
    PHASE_VARIABLE,
    "PULUMI_OPTION_",
    "PULUMI_CONTINUE_ON_ERROR",
    "PULUMI_ENABLE_STREAMING_JSON_PREVIEW",
    "PULUMI_LEGACY_PROVIDER_PREVIEW",
)
#: What a program's SDK says of a value of its configuration that nobody gave.
_NO_VALUE: Final = "Missing required configuration variable"
#: What programs are made of; data and build leftovers are none.
_SOURCES: Final = (".py", ".ts", ".js", ".go", ".yaml", ".yml", ".json", ".txt")


class FailedPreviewError(StackError):
    """A program could not be previewed to its end."""

    def __init__(self, reason: str, document: Mapping[str, Any], pulumi: Pulumi) -> None:
        super().__init__(reason)
        self.document = document
        """What the engine answered all the same."""
        self.pulumi = pulumi


def check_stack(
    subject: Subject, *, strict: bool | None = None, is_ground: bool = False
) -> StackResult:
    """Preview a stack and judge it.

    Args:
        subject: the stack.
        strict: whether what can't be known fails. Default: as the stack says.
        is_ground: whether stacks that are checked after it, in the same sandbox, stand on it.

    Returns:
        The result; what kept the stack from being checked is in its `errors`.

    Raises:
        EngineError: there is no engine.
    """
    stack = subject.stack
    with tempfile.TemporaryDirectory(prefix="falaj-check-") as temporary:
        folder = Path(temporary)
        try:
            found = _check(subject, strict, folder, is_ground)
        except FailedPreviewError as failed:
            found = _in_part(subject, strict, failed)
        except (StackError, PolicyError) as error:
            found = StackResult(stack.name, stack.project.name, "nobody", errors=(str(error),))
        return replace(found, errors=(*found.errors, *_refused(folder)))


def _in_part(subject: Subject, strict: bool | None, failed: FailedPreviewError) -> StackResult:
    """What was declared before the program failed, as far as it can be judged, and why it did."""
    stack, states = subject.stack, _states(failed.document)
    errors: tuple[str, ...] = (str(failed) + _asked_for(stack, str(failed)),)
    try:
        resources, outcomes = judge_in_part(
            states, subject, strict=strict, folder=failed.pulumi.folder
        )
    except (StackError, PolicyError) as error:
        resources, outcomes, errors = (), (), (*errors, str(error))
    answer = _Answer("nobody")
    if resources:
        answer = _answer(subject, failed.pulumi, states)
        errors = (f"{errors[0]}\njudged in part: what was declared before that", *errors[1:])
    return StackResult(
        stack.name,
        stack.project.name,
        answer.by,
        resources=resources,
        outcomes=outcomes,
        errors=errors,
        other_providers=answer.others,
        not_modelled=answer.not_modelled,
    )


@dataclass(frozen=True)
class _Answer:
    """What answered in a preview."""

    by: AnsweredBy
    others: tuple[str, ...] = ()
    not_modelled: tuple[str, ...] = ()


def _answer(subject: Subject, pulumi: Pulumi, states: Sequence[Mapping[str, Any]]) -> _Answer:
    if not pulumi.sandbox:
        return _Answer("machine" if subject.is_local else "cloud-preview")
    known = {*SDKS, *sdks.installed(pulumi.environment)}
    others = other_providers(states, known)
    guessed = packages_of(states) & known - set(PACKAGES)
    return _Answer(
        "sandbox-and-others" if others else "sandbox", tuple(others), tuple(sorted(guessed))
    )


def _states(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The states of the resources in what ``pulumi preview --json`` wrote."""
    return [
        each["newState"]
        for each in sequence(document.get("steps"))
        # What is only read belongs to others: the engine asks no pack about it.
        if each.get("newState") and not str(each.get("op", "")).startswith(("delete", "read"))
    ]


def _refused(folder: Path) -> list[str]:
    """What the sandbox refused while all else was judged."""
    return [f"the sandbox refuses {readable(str(each))}" for each in refusals.read(folder)]


def _asked_for(stack: StackFile, message: str) -> str:
    """The values that a program asks for and nobody gave, where it failed for one of them."""
    if _NO_VALUE not in message or not (missing := missing_values(stack)):
        return ""
    options = " ".join(f"--config {each}=VALUE" for each in missing)
    return f"\n  the program asks for: {options}"


def _check(subject: Subject, strict: bool | None, folder: Path, is_ground: bool) -> StackResult:
    stack, settings = subject.stack, subject.settings
    pulumi, _ = opened(subject, sandbox=not subject.is_local, copied=True, make=make_predicted)
    packs = settings.policies.packs if isinstance(settings, CloudSettings) else PACKS
    folders = pack_folders(packs)
    configuration = folder / "packs.json"
    options = pack_configuration(advisory=True, strict=strict)
    configuration.write_text(json.dumps(options), encoding="utf-8")
    arguments: list[str] = []
    for pack in folders:
        arguments += ["--policy-pack", str(pack), "--policy-pack-config", str(configuration)]
    variables = {
        RECORD_FOLDER: str(folder),
        PROJECT_FOLDER: str(stack.project.root),
        refusals.VARIABLE: str(folder),
    }
    events = folder / "events"
    if is_ground:
        arguments += ["--event-log", str(events)]
        variables |= operation.SHOWN
    with pulumi.predicting() as predicted:
        document = _document(pulumi, arguments, {**variables, **predicted})
        # Its preview needn't be made again for those that stand on it.
        if is_ground and next(refusals.read(folder), None) is None:
            import_predicted(pulumi, predicted, operation.outputs_in(events))
    records = list(read_records(folder))
    return result_of(subject, pulumi, document, records, len(folders))


def result_of(
    subject: Subject,
    pulumi: Pulumi,
    document: Mapping[str, Any],
    records: Sequence[Mapping[str, Any]],
    packs: int,
) -> StackResult:
    """What packs found in a preview.

    Args:
        subject: the stack.
        pulumi: the engine that previewed it.
        document: what ``pulumi preview --json`` wrote.
        records: what the packs wrote.
        packs: how many there are.

    Raises:
        StackError: a resource was not judged by all of them.
    """
    stack = subject.stack
    states = _states(document)
    found = stack_of_states(states)
    require_judged({each.urn for each in found.resources}, records, packs)
    answer = _answer(subject, pulumi, states)
    return StackResult(
        stack.name,
        stack.project.name,
        answer.by,
        program_digest=digest_of_program(subject),
        resources=tuple(resources_of(records, found, subject, pulumi.folder)),
        outcomes=tuple(outcomes_of(records)),
        other_providers=answer.others,
        not_modelled=answer.not_modelled,
        pulumi_version=str(pulumi.engine.version),
    )


def opened(
    subject: Subject,
    *,
    sandbox: bool,
    copied: bool = False,
    make: Callable[[Pulumi, CloudSettings], None] = update_in_sandbox,
) -> tuple[Pulumi, str]:
    """The engine with the stack in its backend, and the place that the stack goes to.

    What the stack stands on is there as well. The place is empty for a stack of this machine.

    Args:
        subject: the stack.
        sandbox: whether the sandbox answers.
        copied: whether the backend is another than the stack's own, so that its file is copied.
            Default: no.
        make: makes what the stack stands on, where the sandbox hasn't got it.

    Raises:
        EngineError: there is no engine.
        StackError: what it stands on isn't there, or can't be made in the sandbox.
    """
    stack, settings = subject.stack, subject.settings
    place = ""
    if isinstance(settings, CloudSettings):
        place = prepare_cloud(stack, settings, sandbox=sandbox)
    pulumi = Pulumi(stack, sandbox=sandbox, plugins=not subject.is_local, copied=copied)
    pulumi.ensure_stack()
    if isinstance(settings, CloudSettings):
        bring_up_upstream(pulumi, settings, make)
    return pulumi, place


def preview_document(
    pulumi: Pulumi, arguments: Sequence[str] = (), variables: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What `pulumi preview --json` answers for the engine's stack, whole.

    In the sandbox it predicts what an update would bring, so that nothing is unknown.

    Args:
        pulumi: the engine.
        arguments: further ones of the command.
        variables: further ones of its environment.

    Raises:
        FailedPreviewError: the stack could not be previewed.
    """
    with pulumi.predicting() as prediction:
        return _document(pulumi, arguments, {**(variables or {}), **prediction})


def _document(
    pulumi: Pulumi, arguments: Sequence[str], variables: Mapping[str, str]
) -> dict[str, Any]:
    done = subprocess.run(
        [str(pulumi.engine.path), "preview", "--json", "-s", pulumi.stack.name,
         "--non-interactive", *arguments],
        cwd=pulumi.folder,
        env=without_options(pulumi.environment) | dict(variables) | dict(LEFT_OUT),
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    document = document_of(done.stdout)
    if done.returncode != 0 or document is None:
        reason = why(document, done.stderr or done.stdout)
        raise FailedPreviewError(reason, document or {}, pulumi)
    return document


def other_providers(
    states: Iterable[Mapping[str, Any]], known: Collection[str] = SDKS
) -> list[str]:
    """Packages that something else than the sandbox answers for, in the states of a preview.

    The sandbox gets no provider from the network, but the engine takes those on the PATH, and a
    program's dynamic providers run in the program.

    Args:
        states: of the resources.
        known: packages that the sandbox stands in for. Default: the clouds'.
    """
    # The engine itself answers for what is `pulumi:`.
    return sorted(readable(each) for each in packages_of(states) - {*known, "pulumi"})


def packages_of(states: Iterable[Mapping[str, Any]]) -> set[str]:
    """The packages of the providers in the states of a preview."""
    found: set[str] = set()
    for each in states:
        kind = str(each.get("type", ""))
        if kind.startswith(PROVIDER):
            found.add(kind.removeprefix(PROVIDER))
        elif each.get("custom") is True:
            found.add(kind.partition(":")[0])
    return found


def without_options(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment without the variables that change what the engine's commands do."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith(_CHANGES_COMMANDS)
    }


def document_of(text: str) -> dict[str, Any] | None:
    """What ``pulumi preview --json`` wrote, among what plugins print before and after it.

    None where there is no such document.
    """
    decoder = json.JSONDecoder()
    for line in re.finditer(r"^\{", text, re.MULTILINE):
        try:
            found: Any = decoder.raw_decode(text, line.start())[0]
        except ValueError:
            continue
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return None


def why(document: Mapping[str, Any] | None, printed: str) -> str:
    """What the engine said of its failure, without its traces, and what to do where that helps.

    Args:
        document: what it answered, where that could be read.
        printed: what it printed besides.
    """
    diagnostics = sequence(mapping(document).get("diagnostics"))
    # What a program or a host writes to its standard error is no error to the engine.
    for severity in ("error", "info#err"):
        messages = [
            str(each.get("message", "")).strip()
            for each in diagnostics
            if each.get("severity") == severity and _CANCELLED not in str(each.get("message", ""))
        ]
        if messages:
            break
    reasons = dict.fromkeys(map(operation.without_trace, filter(None, messages)))
    message = "\n".join(reasons) or printed.strip()
    hint = next((f"\n{each}" for sign, each in _HINTS.items() if sign in message), "")
    return f"it could not be previewed:\n{message or 'the engine failed and said nothing'}{hint}"


def require_judged(urns: set[str], records: Iterable[Mapping[str, Any]], packs: int) -> None:
    """Refuse a result where a resource was judged by fewer packs than there are.

    Args:
        urns: of the resources.
        records: what the packs wrote.
        packs: how many there are.

    Raises:
        StackError: what isn't judged isn't proved.
    """
    seen: dict[str, int] = {}
    answered = 0
    for each in records:
        if each["kind"] == "pack":
            answered += 1
        elif each["kind"] == "resource":
            seen[each["urn"]] = seen.get(each["urn"], 0) + 1
    if answered < max(packs, 1):
        raise StackError(
            f"{answered} of {packs} policy packs judged the whole stack, and nothing is proved "
            "without\n  list packs under falaj:policies.packs, or leave the key out for all"
        )
    missed = sorted(urn for urn in urns if seen.get(urn, 0) < packs)
    if missed:
        names = ", ".join(urn.rpartition("::")[2] for urn in missed[:5])
        raise StackError(
            f"{len(missed)} of {len(urns)} resources were not judged by every pack: {names}"
            f"{' …' if len(missed) > 5 else ''}\n  run it again; if it stays, the packs are "
            "not those of this version"
        )


def digest_of_program(subject: Subject) -> str:
    """SHA-256 over the program's files and the stack's file, by name and content."""
    project = subject.stack.project
    digest = hashlib.sha256()
    folder = (project.root / project.main).resolve()
    files = [path for path in sorted(folder.rglob("*")) if _belongs(path, folder)]
    for path in [*files, project.root / "Pulumi.yaml", subject.stack.path]:
        digest.update(os.fsencode(os.path.relpath(path, project.root)) + b"\0")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _belongs(path: Path, folder: Path) -> bool:
    inner = path.relative_to(folder).parts
    hidden = any(part.startswith(".") or part in ("__pycache__", "node_modules") for part in inner)
    return not hidden and path.suffix in _SOURCES and path.is_file()
