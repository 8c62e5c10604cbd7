"""How much CPU and memory a serverless container may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components.specification.limits import OneOf
from falaj.components.specification.refusals import Refusals

#: Memory in GiB that goes with so many vCPUs: docs.aws.amazon.com/AmazonECS/latest/developerguide/
#: task-cpu-memory-error.html; learn.microsoft.com/azure/container-apps/containers (exactly twice).
_SERVERLESS = {
    "aws": {
        1: range(2, 9),
        2: range(4, 17),
        4: range(8, 31),
        8: range(16, 61, 4),
        16: range(32, 121, 8),
    },
    "azure": {1: range(2, 3), 2: range(4, 5), 3: range(6, 7), 4: range(8, 9)},
}


def serverless_size(
    cloud: str, args: Mapping[str, Any], vcpu: int, refusals: Refusals
) -> tuple[int, int]:
    """vCPU and GiB of memory: those of ``memory_gib``, by default the least with that ``vcpu``."""
    sizes = _SERVERLESS[cloud]
    if vcpu not in sizes:
        rule = OneOf(tuple(sizes))
        refusals.add(
            "vcpu", vcpu, f"{rule.words}, for mode 'serverless'",
            "larger ones need mode 'instances'", limit=rule,
        )  # fmt: skip
        return vcpu, 2 * vcpu
    memories = sizes[vcpu]
    memory: object = args.get("memory_gib") or memories[0]
    if memory not in memories:
        rule = OneOf(tuple(memories))
        words = f"{rule.words} GiB with {vcpu} vCPU, for mode 'serverless'"
        refusals.add("memory_gib", memory, words, limit=rule)
        return vcpu, memories[0]
    return vcpu, int(memory) if isinstance(memory, int | float) else memories[0]
