"""Which key of a stack's file an argument of a component comes from.

Components speak of their arguments (``max_nodes`` of the pool ``h200``), people of what they wrote
(``falaj:gpuPools.h200.maxNodes``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, cast

from pydantic import BaseModel

from falaj.stacks.settings.problems import NAMESPACE, Path, dotted
from falaj.stacks.settings.shapes import (
    NAME,
    ByName,
    Items,
    Keys,
    at,
    choices,
    key_of_model,
    keys_of,
    section_at,
)
from falaj.wire.documents import mapping

#: Sections whose keys are a component's arguments; `NAME` stands for the component's name.
SECTIONS: Final[Mapping[str, Path]] = {
    "KeyRing": ("keys",),
    "Network": ("network",),
    "ObjectStore": ("storage",),
    "AuditTrail": ("audit",),
    "Registry": ("registry",),
    "Identity": ("identity",),
    "Budget": ("budget",),
    "Cluster": ("cluster",),
    "CpuNodePool": ("cpuPools", NAME),
    "GpuNodePool": ("gpuPools", NAME),
    "TrainingFileSystem": ("fileSystem",),
    "WorkloadIdentity": ("workloads", NAME),
    "CpuInferenceTier": ("inference",),
    "Platform": ("installation",),
    "StorageClasses": ("storage",),
    "GpuQueues": ("queues",),
    "Gateway": ("gateway",),
    "Residency": ("residency",),
    "Tenant": ("tenants", NAME),
    "TrainingJob": ("trainingJobs", NAME),
    "Sweep": ("sweeps", NAME),
    "FederatedTraining": ("federatedTrainings", NAME),
    "BatchInference": ("batchInferences", NAME),
    "Pipeline": ("pipelines", NAME),
    "InferenceService": ("inferenceServices", NAME),
    "Workspace": ("workspaces", NAME),
}
#: Arguments that a blueprint takes from other keys than those of the component's section.
_ELSEWHERE: Final[Mapping[tuple[str, str], Path]] = {
    ("Cluster", "zones"): ("network", "zones"),
    ("TrainingFileSystem", "zones"): ("network", "zones"),
    ("CpuNodePool", "kubernetes_version"): ("cluster", "kubernetesVersion"),
    ("GpuNodePool", "kubernetes_version"): ("cluster", "kubernetesVersion"),
    ("CpuInferenceTier", "image"): ("inference", "imageDigest"),
}
#: Keys that stand in for arguments which their own section leaves out.
_INSTEAD: Final[Mapping[tuple[str, str], Path]] = {
    ("Budget", "emails"): ("owner",),
    ("Residency", "allowed_hosts"): ("policies", "allowedHosts"),
    ("Residency", "allowed_registries"): ("policies", "allowedRegistries"),
    ("Residency", "storage_classes"): ("storage", "classes"),
}
#: Arguments of every component that have another name in a stack's file.
_COMMON: Final[Mapping[str, Path]] = {
    "acknowledge_degraded": ("acknowledgeDegraded", "asOf"),
    "distribution": ("platform",),
}
_INDEX: Final = re.compile(r"\[(?:(\d+)|'([^']*)'|\"([^\"]*)\")\]")
_WORD: Final = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
_OF: Final = re.compile(rf"\b([a-z]\w*) of ({'|'.join(SECTIONS)})\b")
_DOT: Final = re.compile(rf"\b({'|'.join(SECTIONS)})\.([a-z]\w*)\b")


def section_of(component: str, name: str) -> Path | None:
    """The section of a component; None where none makes it."""
    path = SECTIONS.get(component)
    return tuple(name if part == NAME else part for part in path) if path else None


def steps(argument: str, args: Any) -> Path:
    """An argument's path in parts: ``quotas.h200.devices['nvidia.com/gpu']``.

    Names may hold dots themselves: the longest key that is there counts.
    """
    found: Path = ()
    here, rest = args, argument
    while rest:
        if index := _INDEX.match(rest):
            part: str | int = int(index[1]) if index[1] else index[2] or index[3] or ""
            rest = rest[index.end() :]
        else:
            rest = rest.removeprefix(".")
            part = _next(rest, here)
            rest = rest[len(str(part)) :]
        found = (*found, part)
        if isinstance(here, Mapping):
            here = cast("Mapping[Any, Any]", here).get(part)
        elif isinstance(here, list) and isinstance(part, int):
            here = cast("list[Any]", here)[part] if part < len(cast("list[Any]", here)) else None
        else:
            here = None
    return found


def _next(text: str, here: Any) -> str:
    for key in sorted(map(str, mapping(here)), key=len, reverse=True):
        if text.startswith(key) and text[len(key) : len(key) + 1] in ("", ".", "["):
            return key
    return re.split(r"[.\[]", text, maxsplit=1)[0] or text


def origin(settings: BaseModel, component: str, name: str, way: Path) -> Path:
    """The path in the settings that an argument comes from.

    Args:
        settings: of the stack.
        component: its class.
        name: the component's name.
        way: the argument's `steps`.
    """
    own = section_of(component, name) or ()
    whole = Keys(type(settings))
    argument, *below = way
    section = section_at(whole, own)
    other = _ELSEWHERE.get((component, str(argument)))
    if other is None and section is not None and key_of_model(section, str(argument)):
        absent = _value(settings, own, str(argument)) is None
        instead = _INSTEAD.get((component, str(argument))) if absent else None
        path = _written(whole, own, way) if instead is None else (*instead, *below)
    elif other is not None:
        path = (*other, *below)
    elif argument in _COMMON:
        path = _COMMON[str(argument)]
    elif key_of_model(type(settings), str(argument)):
        path = _written(whole, (), way)
    else:
        path = own
    return path


def by_keys(names: Mapping[str, str], text: str) -> str:
    """What a component says of its arguments, with the keys of a stack's file in their place.

    Args:
        names: the keys by Python's spelling; see `names_of`.
        text: what it says.
    """

    def of(component: str, argument: str) -> str:
        section = (part for part in SECTIONS[component] if part != NAME)
        path = (*section, names.get(argument, argument))
        return f"{NAMESPACE}:{dotted(path)}"

    text = _OF.sub(lambda found: of(found[2], found[1]), text)
    text = _DOT.sub(lambda found: of(found[1], found[2]), text)
    return _WORD.sub(lambda found: names.get(found[0], found[0]), text)


def in_words(settings: BaseModel, text: str) -> str:
    """What a component refuses, as a stack's file would say it."""
    text = by_keys(names_of(type(settings)), text)
    for python, yaml in (("None", "nothing"), ("True", "true"), ("False", "false")):
        text = text.replace(f"given {python};", f"given {yaml};")
        text = text.replace(f"given {python},", f"given {yaml},")
    return text


@cache
def names_of(*models: type[BaseModel]) -> Mapping[str, str]:
    """All keys of settings, by Python's spelling."""
    found: dict[str, str] = {}
    waiting, met = list(models), set[type[BaseModel]]()
    while waiting:
        here = waiting.pop()
        if here in met:
            continue
        met.add(here)
        for key in keys_of(here):
            found.setdefault(key.attribute, key.name)
            for shape in choices(key.shape):
                inner = shape.of if isinstance(shape, ByName | Items) else shape
                waiting += [each.model for each in choices(inner) if isinstance(each, Keys)]
    return found


def _written(whole: Keys, start: Path, way: Path) -> Path:
    """A way by the keys of the file: in its spelling wherever a section is."""
    path = start
    for part in way:
        section = section_at(whole, path)
        key = key_of_model(section, part) if section and isinstance(part, str) else None
        if section is not None and key is None:
            break
        if section is None and at(whole, path) is None:
            break
        path = (*path, key.name if key else part)
    return path


def _value(settings: BaseModel, path: Path, argument: str) -> Any:
    here: Any = settings
    for part in path:
        if isinstance(here, BaseModel):
            key = key_of_model(type(here), str(part))
            here = getattr(here, key.attribute, None) if key else None
        elif isinstance(here, Mapping):
            here = cast("Mapping[Any, Any]", here).get(part)
    return getattr(here, argument, None)
