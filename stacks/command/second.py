"""A second version beside the one that serves on this machine: which it is, and who says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.stacks.command import service
from falaj.stacks.command.console import say
from falaj.stacks.command.options import the_stack
from falaj.stacks.command.project import StackFile, falaj
from falaj.stacks.errors import StackError
from falaj.stacks.watching.aliases import alias_of, second_alias, store_of
from falaj.workloads.errors import WorkloadError

NO_TEXT: Final = "a stack of a table, of pictures or of digits"
"""Whose model is no language model."""
_WORDS: Final = ("experiment", "shadow")
"""Sections of a service's settings that have a second version, and commands about it."""


@dataclass(frozen=True)
class Second:
    """What a second version is there for.

    Attributes:
        word: the command, and the section of the service's settings.
        noun: what the version is called.
        lack: what a server without the section doesn't do.
        asked: the words of ``config set`` that ask for it.
        language: why a language model can't have it.
        cluster: what there is in a cluster in its stead.
    """

    word: str
    noun: str
    lack: str
    asked: str
    language: str
    cluster: str

    def start(self, version: int, name: str | None, project: Path | None) -> int:
        """Have a version be it, in the place of another one if need be.

        Raises:
            StackError: it can't be.
        """
        found = the_stack(name, project)
        config, alias = self._asked(found)
        if version == _stands_for(config):
            others = [str(each) for each in _versions(config) if each != version]
            raise StackError(
                f"VERSION: given {version}, which is the one that serves; "
                + (f"allowed: {', '.join(others)}" if others else "there is no other one so far")
            )
        arguments = service.registry_arguments("promote", config, alias, "--version", str(version))
        return _turned(found, arguments)

    def stop(self, name: str | None, project: Path | None) -> int:
        """Have no version be it any more.

        Raises:
            StackError: none is.
        """
        found = the_stack(name, project)
        config, alias = self._asked(found)
        self._beside(found, config, alias)
        return _turned(found, service.registry_arguments("withdraw", config, alias))

    def promote(self, name: str | None, project: Path | None) -> int:
        """Have it serve.

        Raises:
            StackError: there is none.
        """
        found = the_stack(name, project)
        config, alias = self._asked(found)
        version = self._beside(found, config, alias)
        arguments = service.registry_arguments(
            "promote", config, str(config["alias"]), "--version", str(version)
        )
        done = _turned(found, arguments)
        if done == 0:
            # It is beside nobody by now; later versions shan't find its alias.
            service.run_workload(service.registry_arguments("withdraw", config, alias))
        return done

    def _asked(self, stack: StackFile) -> tuple[Mapping[str, Any], str]:
        """What the server was told, and the alias of its second version.

        Raises:
            StackError: the stack is in a cloud, serves nothing, or its server wasn't told of one.
        """
        if stack.is_in_cloud:
            raise StackError(
                f"stack {stack.name} is in a cloud; allowed: a stack of the platform local. "
                f"{self.cluster}"
            )
        config = service.require_config(stack)
        alias = second_alias(config, self.word)
        if alias is None:
            if has_language_model(stack):
                raise StackError(
                    f"stack {stack.name} serves a language model, which can have no {self.noun}: "
                    f"{self.language}; allowed: {NO_TEXT}"
                )
            # There is one second version at most, and the other section has to go first.
            told = [
                f"config rm falaj:service.{other}" for other in _WORDS
                if second_alias(config, other) is not None
            ]  # fmt: skip
            steps = (*told, f"config set {self.asked}", "up")
            raise StackError(
                f"the server of stack {stack.name} {self.lack}; have it do so:\n"
                + "\n".join(f"  {falaj(each, stack)}" for each in steps)
            )
        return config, alias

    def _beside(self, stack: StackFile, config: Mapping[str, Any], alias: str) -> int:
        version = _stands_for(config, alias)
        if version is None:
            raise StackError(
                f"stack {stack.name} has no {self.noun}; versions there are: "
                f"{', '.join(map(str, _versions(config)))}\n"
                f"  start one with: {falaj(f'{self.word} start VERSION', stack)}"
            )
        return version


def has_language_model(stack: StackFile) -> bool:
    """Whether the stack's file has a language model learned; of one that can't be read, `falaj up`
    says what is wrong."""
    # The settings' models are read where there is something to refuse.
    from falaj.stacks.settings.local import LocalSettings  # noqa: PLC0415

    try:
        settings = stack.settings()
    except StackError:
        return False
    return isinstance(settings, LocalSettings) and settings.is_text(stack.project.root)


def _turned(stack: StackFile, arguments: list[str]) -> int:
    done = service.run_workload(arguments)
    if done == 0:
        say(f"the server follows within seconds; see: {falaj('status', stack)}")
    return done


def _stands_for(config: Mapping[str, Any], alias: str | None = None) -> int | None:
    """The version of an alias, by default of the one that the server follows."""
    try:
        found = alias_of(config, alias)
    except WorkloadError as error:
        raise StackError(str(error)) from None
    return found.version if found is not None else None


def _versions(config: Mapping[str, Any]) -> list[int]:
    return store_of(config).versions(str(config["model"]))
