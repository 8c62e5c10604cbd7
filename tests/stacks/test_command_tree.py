"""The tree of commands: what `falaj --help` costs, what a slip is answered with, what is said."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from falaj import __version__
from falaj.engine import extras
from falaj.stacks.command import installation, lifecycle, operation, project
from falaj.stacks.command.operation import Note, Progress, clean, label_of_urn
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.tree import COMMANDS, falaj
from falaj.stacks.errors import StackError

NAMES = [name for group in COMMANDS.values() for name in group]
CONTEXT = click.Context(falaj, info_name="falaj")


@pytest.fixture
def stack(tmp_path: Path) -> StackFile:
    folder = tmp_path / "my 'shop'"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: shop\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text("config: {}\n")
    return StackFile("dev", Project.find(folder))


@pytest.mark.parametrize("name", NAMES)
def test_every_command_explains_itself(name: str) -> None:
    done = CliRunner().invoke(falaj, [name, "--help"])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("Usage: ")
    assert max(map(len, done.output.splitlines())) <= 100
    command = falaj.get_command(CONTEXT, name)  # type: ignore[attr-defined]
    assert command is not None
    assert command.help
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            assert option.help, f"falaj {name} {option.opts[0]}"


def test_bringing_a_stack_of_a_cloud_up_loads_nothing_of_other_stacks() -> None:
    """What clusters, machines, registries, prices and rules need is loaded where one asks."""
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from falaj.stacks.command import life\n"
        "from falaj.stacks.settings import is_local, is_workloads, load_file\n"
        "root = Path(sys.argv[1])\n"
        "settings = load_file(root / 'stacks' / 'Pulumi.aws-foundation.yaml', root)\n"
        "assert not is_local(settings) and not is_workloads(settings)\n"
        "others = ('falaj.components.kubernetes', 'falaj.stacks.settings.in_cluster',\n"
        "    'falaj.stacks.settings.local', 'falaj.policies.model', 'falaj.policies.rules',\n"
        "    'falaj.policies.reports', 'falaj.sandbox.prediction', 'falaj.sandbox.schema',\n"
        "    'falaj.stacks.checking', 'falaj.stacks.costs', 'falaj.stacks.images',\n"
        "    'falaj.stacks.command.models', 'falaj.stacks.settings.shapes', 'numpy', 'torch')\n"
        "found = [each for each in sys.modules if each.startswith(others)]\n"
        "assert not found, found\n"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program, str(root)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_help_loads_no_command_and_no_model() -> None:
    program = (
        "import sys\n"
        "from falaj.stacks.command.tree import falaj\n"
        "falaj.main(['--help'], standalone_mode=False)\n"
        "heavy = {'pydantic', 'pulumi', 'yaml', 'rich', 'grpc', 'numpy'} & sys.modules.keys()\n"
        "ours = [name for name in sys.modules if name.startswith('falaj.')]\n"
        "assert not heavy, heavy\n"
        "assert len(ours) < 8, ours\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("prevew", "preview"), ("dwon", "down"), ("setings", "settings"), ("chek", "check")],
)
def test_a_slip_is_answered_with_what_was_meant(typed: str, meant: str) -> None:
    done = CliRunner().invoke(falaj, [typed])
    assert done.exit_code == 2
    assert meant in done.output
    assert "Traceback" not in done.output


def test_an_unknown_option_is_answered_with_what_was_meant() -> None:
    done = CliRunner().invoke(falaj, ["up", "--sandbx"])
    assert done.exit_code == 2
    assert "--sandbox" in done.output


def test_the_version() -> None:
    assert CliRunner().invoke(falaj, ["--version"]).output == f"falaj {__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands(shell: str) -> None:
    done = CliRunner().invoke(falaj, ["completion", shell])
    assert done.exit_code == 0
    assert "_FALAJ_COMPLETE" in done.output


def test_advice_can_be_pasted(stack: StackFile, monkeypatch: pytest.MonkeyPatch) -> None:
    text = project.command("up", stack, sandbox=True)
    words = shlex.split(text)
    assert words[-1] == "--sandbox"
    assert str(stack.project.root) in words
    monkeypatch.chdir(stack.project.root)
    assert str(stack.project.root) not in project.command("up", stack)
    assert not project.command("up", stack).startswith("make")


def test_extras_follow_the_stack() -> None:
    needed = installation.extras_of_stack
    assert needed({"falaj:platform": "local"}) == ["local"]
    assert needed({"falaj:placement": ["aws/me-central-1", "azure/uaenorth"]}) == ["aws", "azure"]
    assert needed({"falaj:platform": "aws", "falaj:blueprint": "workloads"}) == [
        "aws", "kubernetes",
    ]  # fmt: skip
    assert needed({"azure-native:location": "uaenorth"}) == ["azure"]
    asked = {"falaj:platform": "local", "falaj:optimization": {"engine": "openvino"}}
    assert needed(asked) == ["local", "openvino"]
    assert needed(asked | {"falaj:optimization": {"engine": "auto"}}) == ["local"]
    assert needed(asked | {"falaj:optimization": "openvino"}) == ["local"]
    assert needed({"falaj:platform": "nonsense", "falaj:placement": None}) == []


def test_a_missing_extra_is_told_outside_of_a_clone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda name: name != "aws")
    monkeypatch.setattr(installation, "is_clone", lambda: False)
    installation.require(["local"])
    with pytest.raises(StackError, match=r"falaj\[aws\]"):
        installation.require(["aws", "local"])


def resource(kind: str, name: str, **more: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:dev::shop::{kind}::{name}"
    return {"urn": urn, "type": kind, "custom": True, **more}


def test_what_goes_is_named_the_dearest_first(stack: StackFile) -> None:
    resources = [
        resource("pulumi:providers:aws", "provider"),
        resource("aws:ec2/subnet:Subnet", "a"),
        resource("aws:s3/bucketV2:BucketV2", "models"),
        resource("aws:kms/key:Key", "data", protect=True),
    ]
    text = lifecycle.what_goes(stack, resources, sandbox=False)
    assert "3 resources" in text
    assert text.index("Key data") < text.index("BucketV2 models")
    assert "and 1 others" in text
    assert "told to keep, or not to touch: Key data" in text
    assert "nothing real is lost" in lifecycle.what_goes(stack, resources, sandbox=True)


def diagnostic(severity: str, message: str, **more: Any) -> dict[str, Any]:
    return {"diagnosticEvent": {"severity": severity, "message": message, **more}}


def told(*events: dict[str, Any]) -> list[Note]:
    notes: list[Note] = []
    progress = Progress(notes.append)
    for event in events:
        progress.take(event)
    return notes


def test_consequences_are_no_causes() -> None:
    notes = told(
        diagnostic("error", "bucket 'models' exists already\n"),
        diagnostic("error", "failed to run remediation: context canceled"),
        diagnostic("error", "update failed"),
        diagnostic("error", "resource monitor shut down while waiting"),
        diagnostic("warning", "SANDBOX: nothing real is made, changed or paid for; these …"),
        diagnostic("error", "bucket 'models' exists already\n"),
    )
    assert [str(note) for note in notes] == ["error: bucket 'models' exists already"]


def test_a_trace_becomes_what_was_raised() -> None:
    trace = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: no'
    (note,) = told(diagnostic("error", trace))
    assert note.text == 'the program failed: ValueError: no (File "a.py", line 3, in f)'


def test_a_terminal_is_not_steered_by_names() -> None:
    (note,) = told(diagnostic("info", "\x1b[2Jgone\u202e"))
    assert note.text == "[2Jgone"
    assert clean("a\x07b") == "ab"
    assert label_of_urn("urn:odd\x1b") == "urn:odd"


@pytest.mark.parametrize(
    "event",
    [{}, {"diagnosticEvent": None}, {"summaryEvent": {}}, {"resourcePreEvent": {}},
     {"resOutputsEvent": {"metadata": None}}, {"policyEvent": {}}, {"newEvent": {"a": 1}}],
)  # fmt: skip
def test_events_with_nothing_in_them_are_passed_over(event: dict[str, Any]) -> None:
    assert [note for note in told(event) if note.severity == "error"] == []


def test_a_lock_is_told_with_its_owner_and_no_cancel() -> None:
    printed = (
        "error: the stack is currently locked by 1 lock(s). Either wait for the other process(es) "
        "to end or delete the lock file with `pulumi cancel`.\n"
        "  file:///x/.pulumi/locks/a.json: created by me@box (pid 4711) at 2026-11-22T10:00:00Z"
    )
    message = operation.lock_message(printed, "dev")
    assert message is not None
    assert "process 4711 on box, since 2026-11-22T10:00:00Z" in message
    assert "cancel" not in message
    assert operation.lock_message("error: other", "dev") is None


def test_counts_in_words() -> None:
    assert operation.counted({"create": 2, "same": 3}, planned=True) == "2 to create, 3 unchanged"
    assert operation.counted({"create": 2, "delete": 1}, planned=False) == "2 created, 1 deleted"
    assert operation.counted({}, planned=True) == "nothing"
    assert not operation.is_change({"same": 3, "read": 1})
    assert operation.is_change({"same": 3, "replace": 1})


def test_lines_of_progress_fit_and_say_what_is_done(capsys: pytest.CaptureFixture[str]) -> None:
    lines = operation.Lines("updating", 12)
    urn = "urn:pulumi:dev::shop::aws:eks/cluster:Cluster::main"
    lines.progress.take({"resourcePreEvent": {"metadata": {"op": "create", "urn": urn}}})
    assert lines.line() == "updating: 0 of 12 resources, Cluster main (0 s)"
    lines.progress.take({"resOutputsEvent": {"metadata": {"op": "create", "urn": urn}}})
    assert lines.line() == "updating: 1 of 12 resources (0 s)"
    assert lines.progress.made == {"create": 1}
    assert capsys.readouterr().out == ""
    quiet = operation.Lines("previewing", None, quiet=True)
    quiet.progress.take(diagnostic("info", "where it goes"))
    quiet.progress.take({"policyEvent": {"message": "open", "resourceUrn": urn}})
    quiet.progress.take(diagnostic("warning", "an image has no digest"))
    assert capsys.readouterr().out == "      warning: an image has no digest\n"
