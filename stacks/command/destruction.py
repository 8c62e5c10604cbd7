"""What ``falaj down`` is about to destroy, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from falaj.stacks.command.events import label_of_urn
from falaj.stacks.command.project import StackFile

#: Kinds of resources that hold what can't be made again, by the last part of their type, in the
#: order of what people miss most.
_PRECIOUS = (
    "KeyRing", "Key", "Vault", "Dataset", "Bucket", "BucketV2", "StorageAccount", "FileSystem",
    "LustreFileSystem", "Volume", "PersistentVolumeClaim", "TrainingRun", "ModelPackage",
    "Repository", "Registry", "Cluster", "ManagedCluster", "Trail", "Database", "Instance",
    "Namespace",
)  # fmt: skip
_MOST_NAMED = 12


def what_goes(stack: StackFile, resources: Sequence[Mapping[str, Any]], *, sandbox: bool) -> str:
    """What goes with a stack: keys, data and models by name, all else by number.

    Args:
        stack: the stack.
        resources: as its state holds them.
        sandbox: whether all of it is made up.
    """
    real = [each for each in resources if each.get("custom") and not _is_provider(each)]
    lines = [f"This destroys stack {stack.name}: {len(real)} resources."]
    if sandbox:
        lines[0] += " It is in the sandbox: nothing real is lost."
    precious = [each for kind in _PRECIOUS for each in real if _kind(each) == kind]
    named = [label_of_urn(str(each["urn"])) for each in precious]
    lines += [f"  {name}" for name in named[:_MOST_NAMED]]
    if len(named) > _MOST_NAMED:
        lines.append(f"  and {len(named) - _MOST_NAMED} more of these kinds")
    if rest := len(real) - len(precious):
        lines.append(f"  and {rest} others: networks, rights, certificates, services and so on")
    kept = [
        label_of_urn(str(each["urn"]))
        for each in real
        if each.get("retainOnDelete") or each.get("protect")
    ]
    if kept and not sandbox:
        lines.append(f"It is told to keep, or not to touch: {', '.join(kept[:_MOST_NAMED])}")
    if stack.site.exists():
        lines.append(
            f"Files of this machine that go: {stack.site} ({_size(stack.site)}; keys, data, "
            "models, logs)"
        )
    return "\n".join(lines)


def _kind(resource: Mapping[str, Any]) -> str:
    return str(resource.get("type", "")).rpartition(":")[2]


def _is_provider(resource: Mapping[str, Any]) -> bool:
    return str(resource.get("type", "")).startswith("pulumi:")


def _size(folder: Path) -> str:
    total = sum(entry.lstat().st_size for entry in folder.rglob("*") if entry.is_file())
    return f"{total / 2**20:.1f} MiB"
