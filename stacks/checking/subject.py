"""What is checked: a stack of Falaj's, or of any other Pulumi project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.policies.configuration import OWN_STACKS
from falaj.stacks.command import installation
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings, Settings, is_local
from falaj.stacks.settings.source import from_project_and_stack


@dataclass(frozen=True)
class Subject:
    """One stack, and how to preview it."""

    stack: StackFile
    settings: Settings | None
    """None for a program that isn't one of Falaj's."""
    extras: tuple[str, ...] = ()
    """What its program needs of this distribution."""

    @property
    def upstream(self) -> str | None:
        """The stack that it stands on, which has to be there before it can be previewed."""
        return self.settings.upstream if isinstance(self.settings, CloudSettings) else None

    @property
    def chain(self) -> tuple[str, ...]:
        """Names of the stacks that it stands on, the lowest last, as far as their files say it."""
        found: list[str] = []
        current: Subject = self
        while (name := current.upstream) is not None and name not in found:
            found.append(name)
            stack = self.stack.sibling(name)
            if not stack.path.exists():
                break
            current = subject_of(stack)
        return tuple(found)

    @property
    def is_local(self) -> bool:
        """Whether it is for one machine, and needs no sandbox."""
        return is_local(self.settings)


def subjects(project: Project, names: Sequence[str]) -> list[Subject]:
    """The stacks to check, each after the one that it stands on.

    Args:
        project: whose stacks.
        names: of the stacks; none means all that have a file.

    Raises:
        StackError: a stack's file is missing or can't be used, or there is none at all.
    """
    chosen = list(dict.fromkeys(names)) or _all(project)
    found = [subject_of(StackFile(name, project)) for name in chosen]
    order = {each.stack.name: number for number, each in enumerate(found)}
    # What others stand on comes first, so that its own check is done when they need it.
    return sorted(found, key=lambda each: (len(each.chain), order[each.stack.name]))


def subject_of(stack: StackFile) -> Subject:
    """A stack by its file. Raises StackError where that is missing or can't be used."""
    if not stack.path.exists():
        known = ", ".join(stack.project.stack_names) or "none"
        raise StackError(
            f"there is no stack {stack.name!r}: {stack.shown_path} is missing\n"
            f"  stacks here: {known}"
        )
    values = from_project_and_stack(stack.path, stack.project.root, namespace=stack.project.name)
    own = any(key.startswith(OWN_STACKS) for key in values)
    return Subject(
        stack, stack.settings() if own else None, tuple(installation.extras_of_stack(values))
    )


def groups(found: Sequence[Subject]) -> list[list[Subject]]:
    """Stacks that can be checked side by side: those on one ground go one after another."""
    by_ground: dict[str, list[Subject]] = {}
    for each in found:
        by_ground.setdefault((each.stack.name, *each.chain)[-1], []).append(each)
    # The longest first, so that the cores end at about the same time.
    return sorted(by_ground.values(), key=len, reverse=True)


def _all(project: Project) -> list[str]:
    names = project.stack_names
    if not names:
        how = installation.call("new") if project.templates else "pulumi stack init"
        raise StackError(
            f"there is no stack in {project.stack_folder}: nothing to check; expected a file "
            f"Pulumi.NAME.yaml\n  make one with: {how}"
        )
    return names
