"""Faults on demand: the n-th creation of a type fails, an update times out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from falaj.engine.errors import EngineError
from falaj.sandbox.errors import FaultError
from falaj.sandbox.store import Store

ACTIONS: Final = ("create", "read", "update", "delete")


@dataclass(frozen=True)
class Fault:
    """Which operation fails, counted from when the fault was added."""

    action: str
    token: str | None = None
    """Type of the resources meant; None means every type."""
    name: str | None = None
    """Name of the resource meant, as in its URN; None means every one."""
    nth: int = 1
    """Which of the matching operations fails, from 1."""
    timeout: bool = False
    """The cloud does the work but the provider stops waiting; else nothing is done."""
    always: bool = False
    """Every operation from the n-th on fails."""
    times: int = 1
    """How many of them fail, one after the other, from the n-th on; unless `always`."""
    answer: str = ""
    """What the cloud says to it, such as the code ``PrincipalNotFound`` of a role that isn't known
    everywhere yet."""
    number: int = 0
    seen: int = 0
    spent: bool = False

    def __str__(self) -> str:
        which = f"{self.nth}. {self.action} of {self.token or 'any type'}"
        named = f" named {self.name}" if self.name else ""
        how = "times out" if self.timeout else "fails"
        more = f", and {self.times - 1} after it" if self.times > 1 else ""
        again = ", and every one after it" if self.always else more
        again += f", with {self.answer}" if self.answer else ""
        state = "done" if self.spent else f"{self.seen} seen"
        return f"fault {self.number}: the {which}{named} {how}{again} ({state})"


def add(store: Store, fault: Fault) -> Fault:
    """Add a fault; the same with its number.

    Raises:
        EngineError: the action or a count is none.
    """
    if fault.action not in ACTIONS:
        raise EngineError(f"no operation {fault.action!r}; allowed: {', '.join(ACTIONS)}")
    if fault.nth < 1:
        raise EngineError(f"the operation that fails is counted from 1, given {fault.nth}")
    if fault.times < 1:
        raise EngineError(f"at least 1 operation fails, given {fault.times}")
    values = (fault.action, fault.token, fault.name, fault.nth, fault.timeout, fault.always)
    done = store.connection.execute(
        "INSERT INTO faults (action, token, name, nth, timeout, always, times, answer) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (*values, fault.times, fault.answer),
    )
    return _get(store, done.lastrowid or 0)


def listed(store: Store) -> list[Fault]:
    """Every fault that was added, also those that are done."""
    rows = store.connection.execute("SELECT number FROM faults ORDER BY number").fetchall()
    return [_get(store, row[0]) for row in rows]


def clear(store: Store) -> int:
    """Forget every fault; how many there were."""
    return store.connection.execute("DELETE FROM faults").rowcount


def meet(store: Store, action: str, token: str, name: str) -> FaultError | None:
    """Count an operation; the fault that it meets, if any."""
    with store.transaction():
        rows = store.connection.execute(
            "UPDATE faults SET seen = seen + 1 WHERE spent = 0 AND action = ? "
            "AND (token IS NULL OR token = ?) AND (name IS NULL OR name = ?) RETURNING number",
            (action, token, name),
        ).fetchall()
        for (number,) in rows:
            fault = _get(store, number)
            if fault.seen < fault.nth:
                continue
            if not fault.always and fault.seen >= fault.nth + fault.times - 1:
                store.connection.execute("UPDATE faults SET spent = 1 WHERE number = ?", (number,))
            how = "timed out" if fault.timeout else "failed"
            answer = f"{fault.answer}: " if fault.answer else ""
            return FaultError(
                f"{answer}the {action} of {name} ({token}) {how} because the sandbox was told so: "
                f"fault {number}; `falaj sandbox fault list` shows all",
                timed_out=fault.timeout,
            )
    return None


def _get(store: Store, number: int) -> Fault:
    row = store.connection.execute(
        "SELECT action, token, name, nth, timeout, always, times, answer, number, seen, spent "
        "FROM faults WHERE number = ?",
        (number,),
    ).fetchone()
    action, token, name, nth, timeout, always, times, answer, found, seen, spent = row
    return Fault(
        action, token, name, nth, bool(timeout), bool(always), times, answer, found, seen,
        spent=bool(spent),
    )  # fmt: skip
