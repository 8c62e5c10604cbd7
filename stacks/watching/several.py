"""The watches over all models of a stack's server.

Each has a memory, a cool-down and counts of its own, and what goes wrong with one keeps no other
from being looked at.
"""

from __future__ import annotations

from typing import Final

from falaj.stacks.watching.machine import Machine
from falaj.stacks.watching.seen import FURTHER
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder
from falaj.workloads.watching.ladder import Audit, Seen, Tell, Watch
from falaj.workloads.watching.memory import WatchError

_WORST: Final[tuple[Seen, ...]] = ("drifted", "unknown", "fine")


class Watches:
    """The watch over the first model, and one over each further one.

    Args:
        world: of the first model.
        audit: where each step is written down.
        tell: as of a `Watch`.
        by: who acts, for the audit log.

    Raises:
        WatchError: what is remembered of the first model can't be read.
    """

    def __init__(self, world: Machine, audit: Audit, tell: Tell, by: str) -> None:
        self._world, self._audit, self._tell, self._by = world, audit, tell, by
        self._process = 0
        self._first = Watch(
            world.stack.name, world.folder, world, audit, tell, by, versions=world, shadows=world
        )
        self._further: dict[str, Watch] = {}
        self._refused: dict[str, str] = {}

    def begin(self, process: int) -> None:
        """Take over from a watch that ended, and say what it left undone."""
        self._process = process
        self._first.begin(process)

    def look(self) -> Seen:
        """Look at each model once, and do what is to be done; returns the worst that was seen.

        Raises:
            WatchError: the stack's file, or what is remembered of the first model, can't be used.
        """
        seen = {self._first.look()}
        others = self._world.others()
        # What is remembered stays for when it is served again: a cool-down holds until then.
        self._further = {name: each for name, each in self._further.items() if name in others}
        seen |= {self._look(name, world) for name, world in others.items()}
        return next(each for each in _WORST if each in seen)

    def _look(self, name: str, world: Machine) -> Seen:
        try:
            watch = self._further.get(name)
            if watch is None:
                watch = self._begun(name, world)
                self._further[name] = watch
            watch.origin = world.origin()
            seen = watch.look()
        except (WatchError, WorkloadError, OSError) as error:
            if self._refused.get(name) != str(error):
                self._refused[name] = str(error)
                self._tell("refused", f"{name}: {error}", {"model": name})
            return "unknown"
        self._refused.pop(name, None)
        return seen

    def _begun(self, name: str, world: Machine) -> Watch:
        folder = make_private_folder(self._world.folder / FURTHER / name)
        watch = Watch(
            world.stack.name, folder, world, self._audit, self._tell, self._by,
            versions=world, further=name,
        )  # fmt: skip
        watch.begin(self._process)
        return watch
