"""Where things are: a Pulumi project, its stack files, and a stack's own folder on the disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from falaj.engine.folders import data_home
from falaj.stacks.errors import StackError
from falaj.stacks.rehearsal import with_what_components_refuse
from falaj.stacks.settings import Settings, load_file, schema
from falaj.stacks.settings.problems import RefusedSettingsError

#: The folder of Falaj's own project.
ROOT = Path(__file__).resolve().parents[2]
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
        except FileNotFoundError:
            raise StackError(
                f"--project: there is no {_FILE} in {root}; allowed: a folder that has one\n"
                "  make one with: pulumi new FOLDER-OF-A-TEMPLATE"
            ) from None
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise StackError(f"{path} cannot be read: {' '.join(str(error).split())}") from None
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
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
    def templates(self) -> dict[str, Path]:
        """Files from which a stack can be made, by name."""
        found = sorted((self.root / "stacks" / "templates").glob("*.yaml"))
        return {path.stem: path for path in found}


@dataclass(frozen=True)
class StackFile:
    """One stack of a project, by its name."""

    name: str
    project: Project

    def __post_init__(self) -> None:
        if not _STACK_NAME.match(self.name):
            raise StackError(
                f"stack name: given {self.name!r}; allowed: letters, digits, '-', '_' and '.', "
                "at most 100, the first a letter or a digit"
            )

    @property
    def path(self) -> Path:
        """The stack's file, as ``stacks/Pulumi.<stack>.yaml``."""
        return self.project.stack_folder / f"Pulumi.{self.name}.yaml"

    @property
    def shown_path(self) -> Path:
        """The file's path as people write it, from the project's folder."""
        return self.path.relative_to(self.project.root)

    @property
    def site(self) -> Path:
        """The stack's folder on this machine."""
        return data_home() / "stacks" / self.name

    def ensure(self) -> bool:
        """Make the stack's file from the template of the same name; True if it was made now.

        Raises:
            StackError: there is neither a file nor a template.
        """
        if self.path.exists():
            return False
        templates = self.project.templates
        if self.name not in templates:
            files = self.project.stack_folder.glob("Pulumi.*.yaml")
            known = ", ".join(sorted(path.name.split(".")[1] for path in files)) or "none"
            message = (
                f"there is no stack {self.name!r}: {self.shown_path} is missing\n"
                f"  stacks here: {known}"
            )
            if templates:
                message += (
                    f"; templates: {', '.join(templates)}\n  make one with: "
                    f"make new STACK={self.name} TEMPLATE={next(iter(templates))}"
                )
            raise StackError(message)
        self.create_from(templates[self.name])
        return True

    def create_from(self, template: Path) -> None:
        """Copy a template to the stack's file; never overwrites."""
        text = schema.for_editors(template.read_text(encoding="utf-8"), self.path)
        with self.path.open("x", encoding="utf-8") as file:
            file.write(text)

    def settings(self) -> Settings:
        """The validated settings, read without an engine.

        Raises:
            SettingsError: everything that is wrong with them, in the order of the file.
        """
        try:
            return load_file(self.path, self.project.root)
        except RefusedSettingsError as error:
            raise with_what_components_refuse(error, self.project.root) from None

    def sibling(self, name: str) -> StackFile:
        """Another stack of the same project."""
        return StackFile(name, self.project)

    def forget_passphrase(self) -> None:
        """Drop the salt of a passphrase that is gone, so that the next run can make a new one.

        A file with encrypted values is left as it is: they need the passphrase.
        """
        text = self.path.read_text(encoding="utf-8")
        if "secure:" not in text:
            kept = re.sub(r"(?m)^encryptionsalt:.*\n?", "", text)
            if kept != text:
                temporary = self.path.with_suffix(".yaml.part")
                temporary.write_text(kept, encoding="utf-8")
                temporary.replace(self.path)
