"""Waiting for the first version of a service, which a training of the same stack publishes.

A service names its versions by digest, and before its model was trained there are none. So the
training comes first, and the service with another update once the alias that it follows stands
for a version. Only the registry says so; what the pods do is told meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from falaj.stacks.command import project
from falaj.stacks.command.call import Call
from falaj.stacks.command.console import say
from falaj.stacks.command.operation import label_of_urn
from falaj.stacks.errors import StackError

if TYPE_CHECKING:
    from falaj.stacks.settings import Settings, WorkloadsSettings
    from falaj.stacks.settings.in_cluster import Trainer

PATIENCE: Final = 60.0
"""Minutes."""
MOST_MINUTES: Final = 7 * 24 * 60
_SERVICE: Final = "InferenceService"
"""Last part of its type."""
_PAUSE_SECONDS: Final = 15.0
_TOLD_SECONDS: Final = 60.0
"""Between two lines of progress where nothing else is to be told."""


def require_none_served(
    settings: WorkloadsSettings, resources: Sequence[Mapping[str, Any]]
) -> None:
    """Refuse to take a service down because its file names no version any more.

    Args:
        settings: of the stack.
        resources: what its state holds.

    Raises:
        StackError: one of those that have no version is there.
    """
    there = {label_of_urn(str(each["urn"])) for each in resources}
    for name, trainer in settings.awaited.items():
        if f"{_SERVICE} {name}" in there:
            raise StackError(
                f"falaj:inferenceServices.{name}.versions: missing, and the service is there, "
                "which would go until its first version comes\n"
                "  `falaj models follow` writes what its aliases stand for, whose model "
                f"{trainer} publishes; a service that is to go leaves the file"
            )


@dataclass
class Waiting:
    """For the services of a stack that have no version yet.

    Args:
        call: the stack.
        settings: what its file says.
        follow: writes what aliases stand for into the file; whether it may be another now.
    """

    call: Call
    settings: WorkloadsSettings
    follow: Callable[[Call, Settings], bool]
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _told: str = field(default="", init=False)
    _trouble: str = field(default="", init=False)
    _next: float = field(default=0.0, init=False)

    def wait(self, minutes: float) -> Mapping[str, Trainer]:
        """Wait until each has one; those that have none after all.

        Trainings that only the clock or somebody's command starts aren't waited for.

        Raises:
            StackError: a training failed, with what it says.
        """
        end = self.clock() + 60 * minutes
        while True:
            left = self._left()
            started = {name: each for name, each in left.items() if each.kind == "training job"}
            remaining = end - self.clock()
            if not started or remaining <= 0:
                return left
            self._tell(started, remaining)
            self.sleep(min(_PAUSE_SECONDS, remaining))

    def _left(self) -> Mapping[str, Trainer]:
        """The services without a version, once aliases were looked up."""
        if self._is_published():
            self.follow(self.call, self.settings)
            found = self.call.settings()
            assert isinstance(found, type(self.settings))  # noqa: S101 - of the same file
            self.settings = found
        return self.settings.awaited

    def _is_published(self) -> bool:
        # Registries, of which most stacks ask none.
        from falaj.stacks.command.pinned import has_first_version  # noqa: PLC0415
        from falaj.stacks.images.crane import RegistryError  # noqa: PLC0415

        self._trouble = ""
        try:
            return has_first_version(self.call.stack)
        except RegistryError as error:
            # It may be there again in a moment; whoever waits no longer is told by `follow`.
            self._trouble = f"; {str(error).splitlines()[0]}"
            return False

    def _tell(self, waited: Mapping[str, Trainer], remaining: float) -> None:
        states = {each: self._state(each) for each in waited.values()}
        progress = "; ".join(f"{each}: {state}" for each, state in states.items())
        progress += self._trouble
        now = self.clock()
        if progress == self._told and now < self._next:
            return
        self._told, self._next = progress, now + _TOLD_SECONDS
        say(
            f"      waiting for the first version, up to {remaining / 60:.0f} min more: {progress}"
        )

    def _state(self, trainer: Trainer) -> str:
        """What the pods of a training do.

        Raises:
            StackError: it failed.
        """
        # Their client is another extra's.
        from falaj.stacks.command import in_cluster, pods  # noqa: PLC0415

        [workload] = [
            each
            for each in pods.workloads(self.settings)
            if (each.kind, each.name) == (trainer.kind, trainer.name)
        ]
        try:
            cluster = in_cluster.connect(self.call, self.settings)
            failure = cluster.failure_of(workload)
            state = in_cluster.state_of(cluster, workload)
        except StackError as error:
            return f"what its pods do can't be seen ({str(error).splitlines()[0]})"
        if failure:
            logs = project.command("logs", self.call.stack)
            raise StackError(
                f"{trainer} failed, and published nothing: {failure}\n"
                f"  its pods say why: {logs} {trainer.name}"
            )
        return state
