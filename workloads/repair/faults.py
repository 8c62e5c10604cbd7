"""What GPUs report of themselves, and the node condition that is made of it.

dcgm-exporter counts the driver's errors (XIDs) of the last minutes, and forgets them: the GPU
stays broken all the same. So the condition stays until the machine was started again, which its
boot id tells, or until a person says that the GPU was reset or replaced. A failed row remapping is
a state, which the exporter goes on telling.
https://github.com/NVIDIA/dcgm-exporter (internal/pkg/collector/xid_collector.go),
https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.repair.marks import Node, conditions_of, written
from falaj.workloads.repair.settings import NEEDS, Condition, Settings

XIDS: Final = "DCGM_EXP_XID_ERRORS_COUNT"
ROW_REMAP_FAILURE: Final = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
_REPLACEMENT: Final = NEEDS[-1]
_READING: Final = "DCGM_"


@dataclass(frozen=True, order=True)
class Fault:
    """Something that is wrong with one GPU."""

    gpu: str
    """Its number."""
    what: str
    """``Xid79`` or ``RowRemapFailure``."""
    needs: str
    """One of `NEEDS`."""


def read_faults(text: str, settings: Settings) -> tuple[Fault, ...]:
    """Read an exporter's answer.

    Raises:
        WorkloadError: it isn't one, or has no reading yet: that isn't the same as no fault.
    """
    found: set[Fault] = set()
    lines = text.splitlines()
    if not any(each.startswith(_READING) for each in lines):
        raise WorkloadError("an exporter's answer has no reading of a GPU")
    try:
        # Of hundreds of lines for each node these are a few.
        wanted = "\n".join(each for each in lines if each.startswith((XIDS, ROW_REMAP_FAILURE)))
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                if not sample.value > 0:
                    continue
                gpu = sample.labels.get("gpu", "?")
                if sample.name == ROW_REMAP_FAILURE:
                    found.add(Fault(gpu, "RowRemapFailure", _REPLACEMENT))
                number = sample.labels.get("xid", "")
                if sample.name == XIDS and number.isdecimal() and int(number) in settings.xids:
                    found.add(Fault(gpu, f"Xid{number}", settings.xids[int(number)]))
    except (ValueError, KeyError, IndexError) as error:
        raise WorkloadError(f"an exporter's answer can't be read: {error}") from error
    return tuple(sorted(found))


@dataclass(frozen=True)
class Finding:
    """What becomes of a node's condition."""

    condition: Mapping[str, str] | None
    """None: it stays as it is."""
    boot: str | None
    """Of the machine when the fault was seen, kept on the node; None: there is no fault."""

    def notes(self, settings: Settings) -> dict[str, str | None]:
        """Annotations of the node that change with it: a person's word is good for one fault."""
        return {f"{settings.domain}/fault-boot": self.boot, f"{settings.domain}/cleared": None}


def finding(
    node: Node, faults: tuple[Fault, ...], settings: Settings, now: float
) -> Finding | None:
    """The node's condition after its exporter was read; None where nothing changes.

    Args:
        node: as the API server has it.
        faults: what its exporter reports.
        settings: what was asked for.
        now: seconds since 1970.
    """
    before = conditions_of(node).get(settings.fault.type)
    well = Condition(settings.fault.type, "False")
    was = before is not None and before.get("status") == settings.fault.status
    boot = str(mapping(mapping(node.get("status")).get("nodeInfo")).get("bootID", ""))
    notes: Mapping[str, str] = node["metadata"].get("annotations") or {}
    seen = notes.get(f"{settings.domain}/fault-boot", "")
    if faults:
        # Of an earlier fault as well, which may be out of the exporter's window.
        kept, need = _read(before) if was and seen == boot else ((), NEEDS[0])
        parts = tuple(sorted({*kept, *(f"{each.what} on GPU {each.gpu}" for each in faults)}))
        worst = max((need, *(each.needs for each in faults)), key=NEEDS.index)
        if kept == parts:
            return None
        cause = (faults[0].what, f"{_SEPARATOR.join(parts)}: needs {worst}")
        return Finding(_condition(settings.fault, cause, now, before), boot)
    if was:
        cleared = notes.get(f"{settings.domain}/cleared")
        if cleared is None and (not seen or seen == boot):
            return None
        reason = "Rebooted" if cleared is None else "ClearedByHand"
        cause = cleared or "the machine was started again, and its GPUs report nothing"
        return Finding(_condition(well, (reason, cause), now, before), None)
    if before is None:
        cause = ("NoFault", "its GPUs report nothing")
        return Finding(_condition(well, cause, now, before), None)
    return Finding(None, None) if f"{settings.domain}/cleared" in notes else None


_SEPARATOR: Final = "; "


def _read(condition: Mapping[str, Any] | None) -> tuple[tuple[str, ...], str]:
    """What an earlier condition of ours said: the faults, and what helps."""
    faults, _, need = str((condition or {}).get("message", "")).rpartition(": needs ")
    return tuple(faults.split(_SEPARATOR)), need if need in NEEDS else NEEDS[0]


def _condition(
    reported: Condition, why: tuple[str, str], now: float, before: Mapping[str, Any] | None
) -> dict[str, str]:
    """As the API server takes it; the time of its last change stays where it is no change."""
    time = written(now)
    same = before is not None and before.get("status") == reported.status
    since = str(before["lastTransitionTime"]) if before is not None and same else time
    reason, message = why
    return {
        "type": reported.type, "status": reported.status, "reason": reason, "message": message,
        "lastHeartbeatTime": time, "lastTransitionTime": since,
    }  # fmt: skip
