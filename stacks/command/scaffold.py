"""``falaj new``: a stack's file in a project, or a project of its own, from a template."""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.engine.files import OWN_PROJECT, data_home, stack_home
from falaj.stacks.command import installation, project, service
from falaj.stacks.command.console import say, table
from falaj.stacks.command.installation import ROOT, is_clone
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.wire.documents import mapping

_TEMPLATES: Final = ROOT / "stacks" / "templates"
_FILE: Final = "Pulumi.yaml"
#: The stack that a template's project has at first.
_FIRST: Final = "dev"
_PORT: Final = "falaj:service.port"
_PROJECT_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Template:
    """A folder that a project is made from: what `pulumi new` reads as well."""

    name: str
    folder: Path
    document: Mapping[str, Any]

    @property
    def title(self) -> str:
        """What it is, in a line."""
        return str(self.document["template"]["description"])

    @property
    def questions(self) -> Mapping[str, Mapping[str, Any]]:
        """The settings that it asks for, by key."""
        found: Mapping[str, Mapping[str, Any]] = self.document["template"].get("config") or {}
        return found


def templates() -> dict[str, Template]:
    """The templates of projects, by name."""
    found: dict[str, Template] = {}
    for path in sorted(_TEMPLATES.glob(f"*/{_FILE}")):
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        found[path.parent.name] = Template(path.parent.name, path.parent, document)
    return found


def show_templates() -> int:
    """Print the templates; returns the exit status."""
    rows = [("template", "what it is")]
    rows += [(each.name, each.title) for each in templates().values()]
    say(table(rows))
    say(f"\nmake a project with: {installation.call('new FOLDER --template NAME')}")
    return 0


def make(
    folder: Path | None,
    stack: str | None,
    project: Path | None,
    template: str,
    values: Sequence[str],
) -> int:
    """Make what was asked for; returns the exit status.

    Args:
        folder: where a project of its own is made. None: a stack's file in the project here.
        stack: the stack's name.
        project: the project that gets a stack's file.
        template: the template's name.
        values: settings as ``KEY=VALUE``.

    Raises:
        StackError: there is no such template, or something is in the way.
    """
    if folder is not None:
        if project is not None:
            raise StackError(
                "FOLDER and --project exclude each other: a project of its own, or a stack's file "
                "in one that exists"
            )
        return _make_project(folder, stack or _FIRST, _named(template), _given(values))
    if not is_clone() and project is None and not (Path.cwd() / _FILE).is_file():
        how = installation.call(f"new FOLDER --template {template}")
        raise StackError(
            f"there is no project here: no {_FILE} in {Path.cwd()}\n"
            f"  make one in a folder with: {how}"
        )
    if values:
        raise StackError("--set: given without FOLDER; allowed: with one\n  edit the file instead")
    return _make_stack(StackFile(stack or template, Project.find(project)), template)


def _make_stack(stack: StackFile, template: str) -> int:
    found = stack.project.templates
    if template not in found:
        projects = ", ".join(templates())
        raise StackError(
            f"template: given {template!r}; allowed: {', '.join(found) or 'none here'}\n"
            f"  for a project of its own ({projects}): "
            f"{installation.call('new FOLDER --template NAME')}"
        )
    if stack.path.exists():
        raise StackError(
            f"{stack.shown_path} exists already; it was not touched\n"
            "  choose another name, or edit that file"
        )
    stack.create_from(found[template])
    _give_own_port(stack)
    say(f"made {stack.shown_path}; edit it, then: {project.command('up', stack)}")
    if stack.project.root == ROOT:
        say(f"  git leaves it out; to keep it with the project: git add -f {stack.shown_path}")
    return 0


def _give_own_port(stack: StackFile) -> None:
    """Give a new stack of this machine the first port from the template's on that no other has."""
    if (first := _port(stack)) is None:
        return
    others = {
        _port(stack.sibling(each)) for each in stack.project.stack_names if each != stack.name
    }
    port = _free_from(first, others | _ports_of_this_machine(but=stack.site))
    if port != first:
        from falaj.stacks.settings import edit  # noqa: PLC0415 - the models take half a second

        edit.set_values(stack.path, stack.project.root, {_PORT: port})
        say(f"its server gets port {port}, as another stack has {first}")


def _port(stack: StackFile) -> int | None:
    """The port of a stack's server as its file says it; None: it says none that can be used."""
    try:
        settings = stack.settings()
    except StackError:
        return None
    return getattr(getattr(settings, "service", None), "port", None)


def _ports_of_this_machine(but: Path) -> set[int | None]:
    """Ports of the servers of all stacks that are up here, but for one's folder."""
    found: set[int | None] = set()
    home = data_home()
    for of in ("stacks/*", "projects/*/*"):
        for path in home.glob(f"{of}/service/*/service.json"):
            with contextlib.suppress(StackError):
                port = mapping(service.read_account(path)).get("port")
                if isinstance(port, int) and not path.is_relative_to(but):
                    found.add(port)
    return found


def _free_from(first: int, taken: Collection[int | None]) -> int:
    return next((port for port in range(first, 1 << 16) if port not in taken), first)


def _make_project(folder: Path, stack: str, template: Template, values: Mapping[str, str]) -> int:
    target = folder.absolute()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise StackError(f"{folder} exists and isn't empty; name a new folder or an empty one")
    unknown = [key for key in values if key not in template.questions]
    if unknown:
        raise StackError(
            f"--set: given {unknown[0]!r}; the template {template.name} asks for: "
            f"{', '.join(template.questions)}\n  other settings go into the stack's file"
        )
    name = _PROJECT_NAME.sub("-", target.name).strip("-.") or "project"
    if name == OWN_PROJECT:
        name = f"{OWN_PROJECT}-{template.name}"
    answers = {
        key: values.get(key, str(question.get("default", "")))
        for key, question in template.questions.items()
    }
    if _PORT in answers and _PORT not in values:
        answers[_PORT] = str(
            _free_from(int(answers[_PORT]), _ports_of_this_machine(but=stack_home(name, stack)))
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: a project with half of its files would be in the way of the next try.
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        made = Path(temporary) / "project"
        made.mkdir()
        for path in template.folder.iterdir():
            if path.is_file() and path.name != _FILE:
                shutil.copyfile(path, made / path.name)
        (made / _FILE).write_text(_project_file(template, name), encoding="utf-8")
        (made / f"Pulumi.{stack}.yaml").write_text(
            _stack_file(template, answers), encoding="utf-8"
        )
        StackFile(stack, Project.find(made)).settings()
        _move(made, target)
    say(f"made {folder}: {template.title}")
    for line in str(template.document["template"].get("quickstart", "")).rstrip().splitlines():
        say(f"  {line.replace('NAME', stack)}")
    file = folder / f"Pulumi.{stack}.yaml"
    say(f"edit {file} before; every key: {installation.call('settings')}")
    return 0


def _move(made: Path, target: Path) -> None:
    """Give a project its place. An empty folder stays itself: whoever stands in it sees its files.

    Raises:
        StackError: it can't be written; nothing of the project is there.
    """
    if not target.exists():
        made.rename(target)
        return
    moved: list[Path] = []
    try:
        # What makes it a project comes last.
        for path in sorted(made.iterdir(), key=lambda each: each.name == _FILE):
            moved.append(target / path.name)
            shutil.copyfile(path, moved[-1])
    except BaseException as error:
        for path in moved:
            path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StackError(f"can't write {target}: {error.strerror}") from error
        raise


def _project_file(template: Template, name: str) -> str:
    text = (template.folder / _FILE).read_text(encoding="utf-8")
    # The section that asks is for the template alone, as `pulumi new` leaves it out.
    kept = re.sub(r"(?ms)^template:.*?(?=^\S|\Z)", "", text)
    return kept.replace("${PROJECT}", name).replace("${DESCRIPTION}", template.title)


def _stack_file(template: Template, answers: Mapping[str, str]) -> str:
    lines = ["config:"]
    for key, answer in answers.items():
        lines.append(f"  # {template.questions[key].get('description', key)}")
        lines.append(f"  {_line(key, answer)}")
    return "\n".join(lines) + "\n"


def _line(key: str, answer: str) -> str:
    value: Any = yaml.safe_load(answer) if answer in ("true", "false") else answer
    if re.fullmatch(r"\d+", answer):
        value = int(answer)
    return yaml.safe_dump({key: value}, allow_unicode=True, width=10_000).strip()


def _named(template: str) -> Template:
    found = templates()
    if template not in found:
        raise StackError(f"template: given {template!r}; allowed: {', '.join(found)}")
    return found[template]


def _given(values: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in values:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise StackError(f"--set: given {each!r}; allowed: KEY=VALUE, as falaj:tenant=acme")
        found[key] = value
    return found
