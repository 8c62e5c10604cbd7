"""What every resource type of the provider is made of: check, diff, create, read, update, delete.

Handlers are plain and blocking; the provider runs them in threads. They never see the engine's
messages, only plain values (see `falaj.wire.values`).
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from falaj.components.local.machine import StoppedError
from falaj.components.local.provider import fields
from falaj.wire.values import UNKNOWN, Value, Values, has_unknown

# The folders of a stack's site, and nothing but their names.


@dataclass(frozen=True)
class Site:
    """Where everything of a stack lies.

    Attributes:
        path: the site's own folder, absolute.
    """

    path: Path

    @property
    def keyring(self) -> Path:
        """Key-encryption keys, signing key, token key."""
        return self.path / "keyring"

    @property
    def pki(self) -> Path:
        """Certificates and their private keys."""
        return self.path / "pki"

    @property
    def datasets(self) -> Path:
        """Snapshots of datasets, one folder for each digest."""
        return self.path / "datasets"

    @property
    def runs(self) -> Path:
        """Training runs, one folder for each digest."""
        return self.path / "runs"

    @property
    def measured(self) -> Path:
        """What was measured of settings of trainings, by digest of data, model and machine."""
        return self.path / "measured"

    @property
    def registry(self) -> Path:
        """Published packages."""
        return self.path / "registry"

    @property
    def batches(self) -> Path:
        """Predictions of files, one folder for each digest."""
        return self.path / "batches"

    @property
    def services(self) -> Path:
        """Inference services, one folder for each name."""
        return self.path / "service"

    @property
    def daemons(self) -> Path:
        """Programs that are kept running beside the services, one folder for each name."""
        return self.path / "daemons"


Report = Callable[[str, bool], None]
"""Shows a message beside the resource: the text, and whether it is only a passing status."""


def _silent(_message: str, _passing: bool) -> None:
    """Nobody listens."""


@dataclass(frozen=True)
class Context:
    """What a handler may use while it works.

    Attributes:
        name: the resource's name in the program.
        report: shows progress beside the resource.
        cancelled: set when the deployment is being cancelled.
    """

    name: str
    report: Report = _silent
    cancelled: threading.Event = field(default_factory=threading.Event)

    def status(self, message: str) -> None:
        """Show a status that the next one replaces."""
        self.report(message, True)

    def say(self, message: str) -> None:
        """Show a line that stays."""
        self.report(message, False)

    def stop_if_cancelled(self, what: str) -> None:
        """End the work when the deployment is being cancelled.

        Raises:
            StoppedError: it is; `what` names the work.
        """
        if self.cancelled.is_set():
            raise StoppedError(f"{what} was stopped on request; run `pulumi up` again to continue")


@dataclass(frozen=True)
class Change:
    """One difference between what is and what is wanted.

    Attributes:
        replaces: whether it takes a new resource.
        is_input: whether an input changed, as opposed to something found on the machine.
    """

    replaces: bool = False
    is_input: bool = True


class Handler(ABC):
    """A resource type. The state of a resource is its checked inputs plus its outputs."""

    type_name: ClassVar[str]
    summary: ClassVar[str]
    arguments: ClassVar[type]
    """What states the inputs: the arguments of its component."""
    filled: ClassVar[Mapping[str, str]] = {}
    """Inputs that the check fills in, and a sentence on each."""
    table: ClassVar[fields.Table]
    outputs: ClassVar[Mapping[str, str]]
    """Names of the outputs and a sentence on each."""

    delete_before_replace: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        cls.table = fields.table_of(cls.arguments, cls.filled)

    def site_of(self, values: Values) -> Site:
        """The site that a resource belongs to, from its inputs or its state."""
        return Site(Path(fields.text(values, "site")))

    def check(self, given: Values, old: Values) -> Values:
        """The inputs with defaults, after checking them.

        Raises:
            InvalidInputsError: an input is unknown, missing, of a wrong type or out of range.
        """
        del old
        asked = {key: value for key, value in given.items() if key not in self.filled}
        return fields.check(self.table, asked)

    def diff(self, state: Values, inputs: Values) -> dict[str, Change]:
        """What differs, by input (or, for what is found on the machine, by output)."""
        changes = {
            key: Change(replaces=entry.replaces)
            for key, entry in self.table.items()
            if differs(state.get(key), inputs.get(key))
        }
        for key, change in self.drift(state).items():
            changes.setdefault(key, change)
        return changes

    def drift(self, state: Values) -> dict[str, Change]:
        """What on the machine is no longer as the state says, by output."""
        del state
        return {}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Outputs as far as they are known before the work is done.

        Raises:
            LocalError: the work would fail, as far as can be told without doing it.
        """
        del state
        return {**inputs, **dict.fromkeys(self.outputs, UNKNOWN)}

    def outputs_of(self, state: Values) -> Values:
        """The outputs that a state has."""
        return {key: state[key] for key in self.outputs if key in state}

    def after_read(self, state: Values) -> Values:
        """Inputs as they are found on the machine: the state's own."""
        return {key: state[key] for key in self.table if key in state}

    @abstractmethod
    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the resource, or adopt what an interrupted run has left; the id and the outputs.

        Raises:
            LocalError: it can't be made.
        """

    @abstractmethod
    def read(self, resource_id: str, state: Values) -> Values | None:
        """The state as it is found on the machine; None when the resource is gone."""

    @abstractmethod
    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Bring the resource from `state` to `inputs`; the outputs.

        Raises:
            LocalError: it can't be done; the resource still serves as it did.
        """

    @abstractmethod
    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Remove everything that the resource has made, as far as it is still there.

        Raises:
            LocalError: something can't be removed.
        """


def differs(old: Value, new: Value) -> bool:
    """Whether two values differ; what is unknown may turn out different, so it does."""
    if has_unknown(new):
        return True
    if isinstance(old, bool) != isinstance(new, bool):
        return True
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return set(old) != set(new) or any(differs(old[key], new[key]) for key in new)
    return old != new
