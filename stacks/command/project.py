"""Where things are: the project's folder, stack files, and a stack's own folder on the disk."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from engine.folders import data_home
from stacks.errors import StackError
from stacks.settings import LocalSettings, load_file

#: The folder that holds Pulumi.yaml.
ROOT = Path(__file__).resolve().parents[2]
_STACK_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")


@dataclass(frozen=True)
class StackFile:
    """One stack of the project, by its name."""

    name: str

    def __post_init__(self) -> None:
        if not _STACK_NAME.match(self.name):
            raise StackError(
                f"stack name: given {self.name!r}; allowed: letters, digits, '-', '_' and '.', "
                "at most 100, the first a letter or a digit"
            )

    @property
    def path(self) -> Path:
        """The file ``stacks/Pulumi.<stack>.yaml``."""
        return ROOT / "stacks" / f"Pulumi.{self.name}.yaml"

    @property
    def template(self) -> Path:
        """The template of the same name, copied when the stack has no file yet."""
        return ROOT / "stacks" / "templates" / f"{self.name}.yaml"

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
        if not self.template.exists():
            known = sorted(p.name.split(".")[1] for p in ROOT.glob("stacks/Pulumi.*.yaml"))
            templates = sorted(p.stem for p in ROOT.glob("stacks/templates/*.yaml"))
            raise StackError(
                f"there is no stack {self.name!r}: {self.path.relative_to(ROOT)} is missing\n"
                f"  stacks here: {', '.join(known) or 'none'}; templates: {', '.join(templates)}\n"
                f"  make one with: make new STACK={self.name} TEMPLATE={templates[0]}"
            )
        self.create_from(self.template)
        return True

    def create_from(self, template: Path) -> None:
        """Copy a template to the stack's file; never overwrites."""
        with self.path.open("x", encoding="utf-8") as file:
            file.write(template.read_text(encoding="utf-8"))

    def settings(self) -> LocalSettings:
        """The validated settings, read without an engine."""
        return load_file(self.path, ROOT)

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
