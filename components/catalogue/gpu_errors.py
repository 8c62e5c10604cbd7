"""Errors that NVIDIA's driver reports of GPUs (XIDs), and what helps against each.

NVIDIA's catalogue for Ampere and newer, column "Resolution Bucket (Immediate Action)":
https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html, read 2026-11-23. Not here is
what it has the program started again for, and what nobody can decide by its number: 144 to 150
(NVLink 5), whose register says whether they are fatal, 154, which repeats what another one needs,
and 155, which is also logged when a link is put to sleep.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

Need: TypeAlias = Literal["reset", "reboot", "replacement"]
"""A reset of the GPU (or a reboot), a reboot of the machine, or a look at the hardware."""

XIDS: Final[dict[int, Need]] = {
    46: "reset",  # GPU stopped processing
    48: "reset",  # double-bit ECC error: WORKFLOW_XID_48, "reset or node reboot is needed"
    54: "replacement",  # auxiliary power isn't connected: CHECK_MECHANICALS
    62: "reset",  # micro-controller halted
    64: "reset",  # memory couldn't be remapped
    74: "reset",  # NVLink: WORKFLOW_NVLINK_ERR, "reset or node reboot is needed"
    79: "reboot",  # fallen off the bus: RESTART_BM
    95: "reset",  # uncontained memory error
    109: "reset",  # context switch timed out
    110: "reset",  # security fault
    119: "reset",  # GSP doesn't answer
    120: "reset",  # GSP error
    136: "reset",  # link training failed
    140: "reset",  # unrecovered ECC error
    143: "reset",  # GPU could not be initialised
    156: "reset",  # resource retired
    158: "reset",  # fatal timeout
}
"""Errors after which nothing should run on a GPU."""
CONTAINED: Final = 94
"""A memory error that only one program had, which is started again: the GPU may go on until a
reset fits."""
