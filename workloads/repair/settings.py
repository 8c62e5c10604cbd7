"""What a person may ask of the repair of nodes: one file, read strictly."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, TypeVar

from falaj.workloads.bounds import FORMS, REPAIR
from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json

_KEY, _CONDITION = FORMS["repair"]["key"], FORMS["repair"]["condition"]
_PERCENTAGE = FORMS["repair"]["percentage"]
_XID: Final = re.compile(r"^[1-9][0-9]{0,3}$")

NEEDS: Final = ("reset", "reboot", "replacement")
"""What helps against an error of a GPU: a reset of the GPU (or a reboot), a reboot of the machine,
or other hardware."""


@dataclass(frozen=True)
class Condition:
    """A condition of nodes that says that something is wrong: its type, and its status then."""

    type: str
    status: str

    def __str__(self) -> str:
        return f"{self.type}={self.status}"


@dataclass(frozen=True)
class Exporters:
    """Where each node's readings of its GPUs are: pods of a DaemonSet that answer over HTTP."""

    namespace: str
    label: str
    """``key=value`` of its pods."""
    port: int


@dataclass(frozen=True)
class Settings:
    """Everything that was asked for."""

    domain: str
    """What labels and annotations on nodes begin with, before ``/``."""
    taint: str
    """Key of the taint that keeps everybody off a node."""
    watched: tuple[str, ...]
    """Keys of labels; a node with any of them is looked after."""
    conditions: tuple[Condition, ...] = ()
    taints: tuple[str, ...] = ()
    """Keys of others' taints that say that a node is sick."""
    xids: dict[int, str] = field(default_factory=dict[int, str])
    """What helps (`NEEDS`) by the number of each error after which a node is sick."""
    exporters: Exporters | None = None
    """None: GPUs aren't read, and others write all conditions."""
    sick_minutes: float = REPAIR["sick_minutes"].usual
    """How long a condition holds before anything is done."""
    healthy_minutes: float = REPAIR["healthy_minutes"].usual
    """How long a node is well before it returns."""
    drain_minutes: float = REPAIR["drain_minutes"].usual
    """After which somebody is told that pods are still there."""
    most_out: str = f"{REPAIR['most_percent'].usual}%"
    """Nodes that may be out of service at once: a number, or a share of those that are looked
    after, rounded down and at least one."""
    evict_unmanaged: bool = False
    """Whether pods leave that nothing starts again."""
    dry_run: bool = False
    """Whether what would be done is only said."""
    pass_seconds: int = int(REPAIR["pass_seconds"].usual)
    """Between two looks at all nodes."""
    lease_seconds: int = int(REPAIR["lease_seconds"].usual)
    """After which another replica leads where the leader is silent."""

    @property
    def fault(self) -> Condition:
        """The condition that the controller writes itself, of what GPUs report."""
        return Condition(f"{self.domain}/GpuFault", "True")

    def limit(self, nodes: int) -> int:
        """How many of so many nodes may be out of service at once."""
        if not _PERCENTAGE.allows(self.most_out):
            return int(self.most_out)
        return max(1, math.floor(nodes * int(self.most_out.removesuffix("%")) / 100))


def read_settings(path: Path) -> Settings:
    """Read the file.

    Raises:
        WorkloadError: it is missing, or has something that can't be used: each thing is named.
    """
    return parse_settings(read_json(path, "the settings of the repair"))


def parse_settings(given: object) -> Settings:
    """Check the value of the file.

    Raises:
        WorkloadError: as `read_settings`.
    """
    if not is_dictionary(given):
        raise WorkloadError(f"the settings are {given!r}; allowed is an object")
    return _Reader({str(key): each for key, each in given.items()}).settings()


_Value = TypeVar("_Value")


class _Reader:
    """Reads the values one by one, and remembers all that is wrong."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._wrong: list[str] = []

    def settings(self) -> Settings:
        known = {each.name for each in fields(Settings)}
        for key in self._given:
            if key not in known:
                self._say(key, "there is no such setting", f"one of {', '.join(sorted(known))}")
        found: dict[str, Any] = {
            "domain": self._text("domain", r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", needed=True),
            "taint": self._text("taint", _KEY.pattern, needed=True),
            "watched": self._keys("watched"),
            "conditions": self._list("conditions", self._condition),
            "taints": self._keys("taints"),
            "xids": self._xids(),
            "exporters": self._exporters(),
            "most_out": self._most_out(),
        }
        for name in ("sick_minutes", "healthy_minutes", "drain_minutes", "pass_seconds",
                     "lease_seconds"):  # fmt: skip
            found[name] = self._number(name)
        for name in ("evict_unmanaged", "dry_run"):
            found[name] = self._flag(name)
        if "watched" in self._given and not found["watched"]:
            self._say("watched", "no label is named", "one key or more")
        if "watched" not in self._given:
            self._say("watched", "it is missing", "keys of labels of nodes")
        if self._wrong:
            raise WorkloadError("the settings can't be used:\n  " + "\n  ".join(self._wrong))
        return Settings(**{key: each for key, each in found.items() if each is not None})

    def _say(self, key: str, what: str, allowed: str) -> None:
        self._wrong.append(f"{key}: {what}; allowed: {allowed}")

    def _text(self, key: str, pattern: str, *, needed: bool = False) -> str | None:
        value = self._given.get(key)
        if value is None and not needed:
            return None
        if isinstance(value, str) and re.fullmatch(pattern, value):
            return value
        self._say(key, "it is missing" if value is None else f"given {value!r}",
                  "a name as labels of Kubernetes have it")  # fmt: skip
        return None

    def _list(self, key: str, one: Callable[[str, Any], _Value | None]) -> tuple[_Value, ...]:
        value = self._given.get(key, [])
        if not is_sequence(value):
            self._say(key, f"given {value!r}", "a list")
            return ()
        found = [one(f"{key}[{position}]", each) for position, each in enumerate(value)]
        return tuple(each for each in found if each is not None)

    def _keys(self, key: str) -> tuple[str, ...]:
        def one(at: str, value: Any) -> str | None:
            if _KEY.allows(value):
                return value
            self._say(at, f"given {value!r}", _KEY.rule)
            return None

        return self._list(key, one)

    def _condition(self, at: str, value: Any) -> Condition | None:
        if not _CONDITION.allows(value):
            allowed = f"{_CONDITION.rule}, such as {_CONDITION.example}"
            self._say(at, f"given {value!r}", allowed)
            return None
        kind, _, status = str(value).rpartition("=")
        return Condition(kind, status)

    def _xids(self) -> dict[int, str]:
        value = self._given.get("xids", {})
        if not is_dictionary(value) or not all(
            _XID.match(str(number)) and need in NEEDS for number, need in value.items()
        ):
            self._say("xids", f"given {value!r}", f"numbers of errors, each with one of {NEEDS}")
            return {}
        return {int(number): str(need) for number, need in value.items()}

    def _exporters(self) -> Exporters | None:
        value = self._given.get("exporters")
        if value is None:
            return None
        names = {each.name for each in fields(Exporters)}
        if is_dictionary(value) and value.keys() == names:
            namespace, label, port = value["namespace"], value["label"], value["port"]
            key, _, of = str(label).partition("=")
            if (
                isinstance(namespace, str)
                and re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", namespace)
                and _KEY.allows(key)
                and re.fullmatch(r"[A-Za-z0-9._-]{1,63}", of)
                and isinstance(port, int)
                and not isinstance(port, bool)
                and 1 <= port <= 65535
            ):
                return Exporters(namespace, str(label), port)
        self._say("exporters", f"given {value!r}",
                  "namespace, label (key=value) and port (1 to 65,535) of their pods")  # fmt: skip
        return None

    def _number(self, key: str) -> float | None:
        value = self._given.get(key)
        if value is None:
            return None
        if REPAIR[key].allows(value):
            return value
        self._say(key, f"given {value!r}", REPAIR[key].description)
        return None

    def _most_out(self) -> str | None:
        value = self._given.get("most_out")
        if value is None:
            return None
        nodes, percent = REPAIR["most_nodes"], REPAIR["most_percent"]
        if _PERCENTAGE.allows(value) and percent.allows(int(str(value).removesuffix("%"))):
            return str(value)
        if nodes.allows(value):
            return str(value)
        self._say("most_out", f"given {value!r}",
                  f"{nodes.description}, or {percent.description} with % behind it")  # fmt: skip
        return None

    def _flag(self, key: str) -> bool | None:
        value = self._given.get(key)
        if value is None or isinstance(value, bool):
            return value
        self._say(key, f"given {value!r}", "true or false")
        return None
