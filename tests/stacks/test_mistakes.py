"""Every mistake is told with its line and the line to write, which makes it go away."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings.problems import Problem, RefusedSettingsError
from falaj.stacks.validation import ask_components
from tests.stacks.mistakes import BASES, MISTAKES, SIBLINGS, Mistake

_HEAD = re.compile(
    r"  (?:write lines? (\d+)(?: to (\d+))? as|add after line (\d+)|add at the b.*):"
)
_GONE = re.compile(r"  remove lines? (\d+)(?: to (\d+))?")
_ROW = re.compile(r"  +\d+ \| (.*)")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with stacks that others refer to, a table and waivers."""
    (tmp_path / "Pulumi.yaml").write_text("name: falaj\nmain: stacks\nstackConfigDir: stacks\n")
    (tmp_path / "stacks" / "waivers").mkdir(parents=True)
    (tmp_path / "stacks" / "waivers" / "platform.yaml").write_text("waivers: []\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "customers.csv").write_text("age,region,churned\n1,a,0\n")
    for name, text in SIBLINGS.items():
        (tmp_path / "stacks" / f"Pulumi.{name}.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return Project.find()


def problems(project: Project, text: str) -> tuple[Problem, ...]:
    """What the command would say of a stack file before any engine starts."""
    stack = StackFile("dev", project)
    stack.path.write_bytes(text.encode())
    try:
        ask_components(stack.settings(), project.root)
    except RefusedSettingsError as error:
        assert str(error) == "\n".join(map(str, error.problems))
        return error.problems
    return ()


@dataclass
class Correction:
    """What a message says is to be done with lines."""

    first: int
    last: int
    lines: list[str]

    def applied(self, text: str) -> str:
        old = text.split("\n")
        old[self.first - 1 : self.last] = self.lines
        return "\n".join(old)


def corrections(message: str) -> list[Correction]:
    """Read from the message itself, as a person would."""
    found: list[Correction] = []
    for line in message.splitlines():
        if head := _HEAD.fullmatch(line):
            first = int(head[1] or int(head[3] or 0) + 1)
            last = int(head[2] or head[1]) if head[1] else first - 1
            found.append(Correction(first, last, []))
        elif gone := _GONE.fullmatch(line):
            found.append(Correction(int(gone[1]), int(gone[2] or gone[1]), []))
        elif (row := _ROW.fullmatch(line)) and found:
            found[-1].lines.append(row[1])
    return found


@pytest.mark.parametrize("base", BASES)
def test_bases_are_right(project: Project, base: str) -> None:
    assert problems(project, BASES[base]) == ()


def test_there_are_mistakes_of_every_kind() -> None:
    assert len(MISTAKES) >= 40
    assert {each.base for each in MISTAKES} == set(BASES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda each: f"{each.base}-{each.new[:30]}")
def test_a_mistake_is_told_with_its_line_and_the_line_to_write(
    project: Project, mistake: Mistake
) -> None:
    base = BASES[mistake.base]
    assert base.count(mistake.old) >= 1
    text = base.replace(mistake.old, mistake.new, 1)
    found = problems(project, text)
    told = [str(each) for each in found]
    start = f"stacks/Pulumi.dev.yaml:{mistake.line}: {mistake.said}"
    assert any(each.startswith(start) for each in told), "\n".join(told)
    message = "\n".join(told)
    proposed = corrections(message)
    if mistake.correct is None:
        assert not proposed, message
        return
    # Applied from the end, as one does with line numbers, everything proposed makes it go away.
    mended = text
    for each in sorted(proposed, key=lambda each: each.first, reverse=True):
        mended = each.applied(mended)
    written = [line for each in proposed for line in each.lines]
    assert (mistake.correct in written) if mistake.correct != "-" else proposed, message
    after = problems(project, mended)
    assert after == (), "\n".join(map(str, after))


@pytest.mark.parametrize("mistake", MISTAKES[::5], ids=lambda each: f"{each.base}-{each.new[:30]}")
@pytest.mark.parametrize("change", ["crlf", "bom"])
def test_other_ends_of_lines_make_no_difference(
    project: Project, mistake: Mistake, change: str
) -> None:
    text = BASES[mistake.base].replace(mistake.old, mistake.new, 1)
    other = text.replace("\n", "\r\n") if change == "crlf" else "\ufeff" + text
    plain = [str(each) for each in problems(project, text)]
    told = [str(each) for each in problems(project, other)]
    assert told == plain


def test_all_mistakes_of_a_file_are_told_at_once_in_its_order(project: Project) -> None:
    text = BASES["cluster"]
    for old, new in (
        ("region: me-central-1\n  falaj:f", "region: UAE North\n  falaj:f"),
        ("dataClass: confidential", "dataClass: Confidential"),
        ("vcpu: 4", "vcpus: 4"),
        ("gpu: H200", "gpu: H2000"),
        ("maxNodes: 4\n", "maxNodes: 0\n"),
        ("capacityGib: 2400", "capacityGib: 2500"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    found = problems(project, text)
    assert [each.line for each in found] == [4, 12, 16, 19, 24, 25]
    mended = text
    for each in reversed(corrections("\n".join(map(str, found)))):
        mended = each.applied(mended)
    assert problems(project, mended) == ()


def test_what_one_line_gets_wrong_is_written_once(project: Project) -> None:
    text = BASES["local"].replace("{epochs: 3, width: 16}", "{epoch: 3, width: 0, sed: 1}")
    found = problems(project, text)
    assert [each.line for each in found] == [9, 9, 9]
    proposed = corrections("\n".join(map(str, found)))
    assert [each.lines for each in proposed] == [
        ["  falaj:training: {epochs: 3, width: 1, seed: 1}"]
    ]


def test_a_project_file_is_named_where_it_is_wrong(project: Project) -> None:
    path = project.root / "Pulumi.yaml"
    path.write_text(
        "name: falaj\nmain: stacks\nstackConfigDir: stacks\nconfig:\n"
        "  falaj:platform:\n    value: local\n  falaj:retain: {value: perhaps}\n"
        "  falaj:keepVersions: 1\n  falaj:keepVersions: 2\n"
    )
    found = problems(project, "config:\n  falaj:dataset: digits\n")
    assert [str(each).partition("\n")[0][:60] for each in found] == [
        "Pulumi.yaml:7: falaj:retain: given 'perhaps'; allowed: true ",
        "Pulumi.yaml:8: falaj:keepVersions: given 1; allowed: a whole",
        "Pulumi.yaml:9: falaj:keepVersions: given twice, in line 8 as",
    ]
    mended = path.read_text()
    for each in reversed(corrections("\n".join(map(str, found)))):
        mended = each.applied(mended)
    path.write_text(mended)
    assert problems(project, "config:\n  falaj:dataset: digits\n") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "stacks/Pulumi.dev.yaml:1: falaj:platform: given nothing; allowed: local, aws"),
        ("# only a comment\n", "stacks/Pulumi.dev.yaml:1: falaj:platform: given nothing"),
        ("config:\n- falaj:platform: local\n", "stacks/Pulumi.dev.yaml:1: `config` must be a m"),
        ("- a\n", "stacks/Pulumi.dev.yaml:1: expected a mapping with a `config` section, not a l"),
        ("config: {}\n---\nx: 1\n", "stacks/Pulumi.dev.yaml:2: a second document starts here"),
        ("config:\n  falaj:x: !!binary eA==\n", "stacks/Pulumi.dev.yaml:2: the tag 'tag:yaml.o"),
        ("config:\n  falaj:x: &a [*a]\n", "stacks/Pulumi.dev.yaml:2: *a repeats what it stands"),
        ("config:\n  falaj:x: *a\n", "stacks/Pulumi.dev.yaml:2: *a repeats nothing: no &a bef"),
        ("config:\n  falaj:x: {<<: 5}\n", "stacks/Pulumi.dev.yaml:2: << takes over no mapping"),
        ("config:\n  ? [a]\n  : 1\n", "stacks/Pulumi.dev.yaml:2: a list or mapping as a key"),
        ("config:\n  5: 1\n", "stacks/Pulumi.dev.yaml:2: the key 5 is no text; write it in quo"),
        ("falaj:platform: local\n", "stacks/Pulumi.dev.yaml:1: falaj:platform: stands outside of"),
        ("config:\n  falaj:x: \x01\n", "stacks/Pulumi.dev.yaml:2: the character U+0001 is n"),
        ("a: " + "[" * 20_000, "stacks/Pulumi.dev.yaml:1: nested deeper than 50 levels"),
        ("a: 1\n" * 60_000, "stacks/Pulumi.dev.yaml:1: has 300000 bytes; allowed: at most 262144"),
        (
            "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n"
            + "".join(f"b{n}: &b{n} [{', '.join(['*a' if n == 0 else f'*b{n - 1}'] * 9)}]\n"
                      for n in range(6)),
            "stacks/Pulumi.dev.yaml:6: more than 100000 values, with what aliases repeat",
        ),
    ],
)  # fmt: skip
def test_files_that_are_no_stack_files(project: Project, text: str, said: str) -> None:
    assert any(str(each).startswith(said) for each in problems(project, text))


def test_a_file_in_another_encoding_is_named_with_its_line(project: Project) -> None:
    stack = StackFile("dev", project)
    stack.path.write_bytes("config:\n  falaj:owner: caf\xe9\n".encode("latin-1"))
    with pytest.raises(StackError, match=r"Pulumi\.dev\.yaml:2: byte 0xe9 is not UTF-8; save"):
        stack.settings()


def test_anchors_and_merges_are_taken_and_their_lines_are_the_anchors(project: Project) -> None:
    text = (
        "x: &all {epochs: 3, width: 16}\nconfig:\n  falaj:platform: local\n"
        "  falaj:training:\n    <<: *all\n    width: 32\n"
    )
    assert problems(project, text) == ()
    found = problems(project, text.replace("epochs: 3", "epochs: 0"))
    assert [(each.line, each.text[:40]) for each in found] == [
        (1, "falaj:training.epochs: given 0; allowed:"[:40])
    ]


def test_paths_are_shown_from_where_one_is(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = BASES["local"].replace("port: 8443", "port: 1")
    monkeypatch.chdir(project.root / "stacks")
    assert str(problems(project, text)[0]).startswith("Pulumi.dev.yaml:7: ")
    monkeypatch.chdir(project.root.parent)
    shown = f"{project.root.name}/stacks/Pulumi.dev.yaml:7: "
    assert str(problems(project, text)[0]).startswith(shown)
    monkeypatch.chdir("/")
    assert re.match(r"\S+/Pulumi\.dev\.yaml:7: ", str(problems(project, text)[0]))


def test_no_secret_is_told(project: Project) -> None:
    text = BASES["local"].replace("dataset: digits", "dataset: {secure: v1:abcdef}")
    (found,) = problems(project, text)
    assert str(found).startswith("stacks/Pulumi.dev.yaml:4: falaj:dataset: given an encrypted")
    assert "abcdef" not in str(found)
