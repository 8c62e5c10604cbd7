"""Where things are: a project, its stack files, a stack's own folder; how to call a command."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import yaml

from falaj.engine.files import replace_file, stack_home
from falaj.stacks.command import installation, testplane
from falaj.stacks.command.console import say
from falaj.stacks.command.installation import ROOT
from falaj.stacks.errors import StackError
from falaj.wire.documents import is_mapping, mapping

if TYPE_CHECKING:
    from collections.abc import Mapping

    from falaj.stacks.settings import Settings


_SALT: Final = "encryptionsalt"
_STACK_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")
_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Project:
    """A folder with a ``Pulumi.yaml``: Falaj's own, or one made from a template."""

    root: Path
    name: str
    main: str
    config_dir: str

    @classmethod
    def find(cls, folder: Path | None = None) -> Project:
        """The project in ``folder``; without one, that of the working folder, else Falaj's own.

        Raises:
            StackError: there is no project in ``folder``, or its file can't be used.
        """
        here = Path.cwd()
        root = folder or (here if (here / _FILE).is_file() else ROOT)
        path = root / _FILE
        try:
            found = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            where = (
                f"--project: there is no {_FILE} in {folder}"
                if folder
                else (f"there is no project here: no {_FILE} in {here}")
            )
            raise StackError(
                f"{where}; allowed: a folder that has one\n"
                f"  make one with: {installation.call('new FOLDER --template local')}"
            ) from None
        except (OSError, ValueError, yaml.YAMLError) as error:
            raise StackError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(mapping(found).get("name"), str):
            raise StackError(f"{path}: expected a mapping with the project's `name`")
        values = cast("dict[str, Any]", found)
        return cls(
            root.resolve(),
            values["name"],
            str(values.get("main", ".")),
            str(values.get("stackConfigDir", ".")),
        )

    @property
    def stack_folder(self) -> Path:
        """Where the stack files are."""
        return self.root / self.config_dir

    @property
    def stack_names(self) -> list[str]:
        """Names of the stacks that have a file."""
        found = sorted(self.stack_folder.glob("Pulumi.*.yaml"))
        names = [path.stem.removeprefix("Pulumi.") for path in found]
        # A copy such as "Pulumi.dev copy.yaml" is no stack's.
        return [each for each in names if _STACK_NAME.match(each)]

    @property
    def default_stack_or_none(self) -> str | None:
        """The stack that commands are for where none is named; None where several could be."""
        names = self.stack_names
        if self.root == ROOT or "local" in names:
            return "local"
        return names[0] if len(names) == 1 else None

    @property
    def default_stack(self) -> str:
        """The stack that commands are for where none is named.

        Raises:
            StackError: several could be meant, or there is none.
        """
        found = self.default_stack_or_none
        if found is None:
            known = ", ".join(self.stack_names) or "none; make one with: pulumi stack init NAME"
            raise StackError(f"--stack: missing; stacks here: {known}")
        return found

    @property
    def templates(self) -> dict[str, Path]:
        """Files of the project from which a stack can be made, by name."""
        found = sorted((self.root / "stacks" / "templates").glob("*.yaml"))
        return {path.stem: path for path in found}


@dataclass(frozen=True)
class StackFile:
    """One stack of a project, by its name."""

    name: str
    project: Project
    given: Path | None = None
    """A file elsewhere that says what the stack's own would. Default: the project's."""

    def __post_init__(self) -> None:
        if not _STACK_NAME.match(self.name):
            raise StackError(
                f"stack name: given {self.name!r}; allowed: letters, digits, '-', '_' and '.', "
                "at most 100, the first a letter or a digit"
            )

    @property
    def path(self) -> Path:
        """The stack's file, as ``stacks/Pulumi.<stack>.yaml``."""
        return self.given or self.project.stack_folder / f"Pulumi.{self.name}.yaml"

    @property
    def shown_path(self) -> Path:
        """The file's path as people write it, from the project's folder."""
        return Path(self.path.name) if self.given else self.path.relative_to(self.project.root)

    @property
    def site(self) -> Path:
        """The stack's folder on this machine."""
        return stack_home(self.project.name, self.name)

    def ensure(self) -> bool:
        """Make the stack's file from the template of the same name, and say so; True if it was
        made now.

        Raises:
            StackError: there is neither a file nor a template.
        """
        if self.path.exists():
            return False
        templates = self.project.templates
        if self.name not in templates:
            known = ", ".join(self.project.stack_names) or "none"
            message = (
                f"there is no stack {self.name!r}: {self.shown_path} is missing\n"
                f"  stacks here: {known}"
            )
            if templates:
                make = f"new --stack {self.name} --template {next(iter(templates))}"
                how = installation.call(make)
                message += f"; templates: {', '.join(templates)}\n  make one with: {how}"
            raise StackError(message)
        self.create_from(templates[self.name])
        say(f"made {self.shown_path} from its template; it is yours to edit")
        return True

    def create_from(self, template: Path) -> None:
        """Copy a template to the stack's file; never overwrites."""
        from falaj.stacks.settings import schema  # noqa: PLC0415 - the models, again

        text = schema.for_editors(template.read_text(encoding="utf-8"), self.path)
        with self.path.open("x", encoding="utf-8") as file:
            file.write(text)

    def settings(self) -> Settings:
        """The validated settings, read without an engine.

        Raises:
            SettingsError: everything that is wrong with them, in the order of the file.
        """
        # The models take half a second: not for commands that don't read them.
        from falaj.stacks.settings import load_file  # noqa: PLC0415
        from falaj.stacks.settings.problems import RefusedSettingsError  # noqa: PLC0415

        try:
            return load_file(self.path, self.project.root)
        except RefusedSettingsError as error:
            from falaj.stacks.validation import with_what_components_refuse  # noqa: PLC0415

            raise with_what_components_refuse(error, self.project.root) from None

    @property
    def is_in_cloud(self) -> bool:
        """Whether its file says so; what can't be read is not, and is refused by others."""
        keys = {**_plain(self.project.root / _FILE), **_plain(self.path)}
        return "falaj:placement" in keys or keys.get("falaj:platform", "local") != "local"

    def sibling(self, name: str) -> StackFile:
        """Another stack of the same project."""
        return StackFile(name, self.project)

    @property
    def salt(self) -> str | None:
        """The salt of the passphrase that encrypts the file's values; None where it says none."""
        found = _document(self.path).get(_SALT)
        return found if isinstance(found, str) else None

    def forget_passphrase(self) -> None:
        """Drop the salt of a passphrase that is gone, so that the next run can make a new one.

        A file with encrypted values is left as it is: they need the passphrase.
        """
        text = self.path.read_text(encoding="utf-8")
        if "secure:" not in text:
            kept = re.sub(rf"(?m)^{_SALT}:.*\n?", "", text)
            if kept != text:
                replace_file(self.path, kept)


def _document(path: Path) -> Mapping[Any, Any]:
    """What a file in YAML says; nothing where it can't be read."""
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        # A ValueError is of text that is no UTF-8, or of a date such as 2026-13-45.
        return {}
    return mapping(found)


def _plain(path: Path) -> dict[str, Any]:
    """The configuration in a file, unchecked; of a project's file the values of its keys."""
    return {
        str(key): value.get("value", value.get("default")) if is_mapping(value) else value
        for key, value in mapping(_document(path).get("config")).items()
    }


# How to call the next command from where a person stands: by `make` in a clone, else alone.

#: The stack that commands are for where none is named, in a clone.
_DEFAULT = "local"


def command(verb: str, stack: StackFile, *, sandbox: bool = False, quiet: bool = False) -> str:
    """The command for a stack, to be pasted into a shell.

    Args:
        verb: ``up``, ``down`` and so on: both a command and a target of make.
        stack: which stack it is for.
        sandbox: whether it goes to the sandbox.
        quiet: what it prints is read by another program.
    """
    project = stack.project
    plane = testplane.options(make=True) if sandbox else ""
    by_make = not plane.startswith(" --")
    if by_make and project.root == installation.ROOT and installation.is_clone():
        arguments = ["make", *(["-s"] if quiet else [])]
        if Path.cwd() != project.root:
            arguments += ["-C", str(project.root)]
        arguments.append(verb)
        if stack.name != _DEFAULT:
            arguments.append(f"STACK={stack.name}")
        return shlex.join(arguments) + (f" SANDBOX=1{plane}" if sandbox else "")
    plane = testplane.options(make=False)
    return falaj(verb, stack) + (f" --sandbox{plane}" if sandbox else "")


def falaj(arguments: str, stack: StackFile) -> str:
    """A call of ``falaj`` itself, for a stack.

    Args:
        arguments: what follows its name, quoted for a shell.
        stack: the stack that it is for.
    """
    text = installation.call(arguments)
    if stack.name != stack.project.default_stack_or_none:
        text += f" --stack {shlex.quote(stack.name)}"
    if Path.cwd() != stack.project.root:
        text += f" --project {shlex.quote(str(stack.project.root))}"
    return text
