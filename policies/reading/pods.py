"""Every pod that an object would start, and the containers of it.

Pods stand at known places in Kubernetes' own kinds. In custom resources they stand anywhere: a
mapping with a list of containers is a pod's specification, wherever it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from falaj.policies.model import (
    Finding,
    Path,
    Resource,
    get,
    is_list,
    is_unknown,
    items,
    spell,
    text,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.kubernetes import Manifest, is_object, join, manifests
from falaj.policies.reading.namespaces import Level, level_of
from falaj.policies.reading.remembered import remembered

CONTAINER_LISTS: Final = ("containers", "initContainers", "ephemeralContainers")
#: Where Kubernetes' own kinds keep what becomes a pod: metadata and spec stand under it.
TEMPLATES: Final[Mapping[str, str]] = {
    "Pod": "",
    "PodTemplate": "template",
    "Deployment": "spec.template",
    "StatefulSet": "spec.template",
    "DaemonSet": "spec.template",
    "ReplicaSet": "spec.template",
    "ReplicationController": "spec.template",
    "Job": "spec.template",
    "CronJob": "spec.jobTemplate.spec.template",
}
_OWN_GROUPS: Final = frozenset({"", "apps", "batch", "extensions"})
#: Custom kinds whose containers are merged into those that their operator writes.
_MERGING_GROUPS: Final = frozenset({"monitoring.coreos.com"})
#: Keys under which custom kinds keep one container, without a list (Argo, Tekton).
_SINGLE: Final = ("container", "script")
_MORE_LISTS: Final = ("sidecars", "steps")
#: Never searched: what describes types, or is written by the cluster.
#: Kinds that describe pods which other objects then start.
TEMPLATE_KINDS: Final = frozenset({
    "PodTemplate", "ClusterServingRuntime", "ServingRuntime", "ClusterTrainingRuntime",
    "TrainingRuntime", "WorkflowTemplate", "ClusterWorkflowTemplate", "LLMInferenceServiceConfig",
})  # fmt: skip
_NO_PODS: Final = frozenset({"status", "openAPIV3Schema", "metadata"})


@dataclass(frozen=True)
class Pod:
    """What would become a pod, in an object of any kind."""

    manifest: Manifest
    at: str
    """Path of its spec in the object."""
    spec: Mapping[str, Any]
    metadata_at: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hidden: str = ""
    """Why its spec can't be seen; empty where it can."""
    is_partial: bool = False
    """Whether somebody else adds to it, so that what it lacks says nothing."""
    is_bare: bool = False
    """Whether it is settings of a pod and of its container at once, in a custom object."""

    def get(self, path: str) -> Any:
        """What is at a path of its spec, or ABSENT."""
        return get(self.spec, path)

    @property
    def level(self) -> Level:
        """The Pod Security Standard that it must meet."""
        return level_of(self.manifest)

    @property
    def is_windows(self) -> bool:
        """Whether it says that it runs on Windows, where Linux' settings don't apply."""
        return text(self.get("os.name")).lower() == "windows"

    @property
    def containers(self) -> tuple[Container, ...]:
        """All its containers, of all lists."""
        return tuple(self._containers())

    def _containers(self) -> Iterator[Container]:
        if self.is_bare:
            yield Container(self, self.at, "", self.spec)
        for key in (*CONTAINER_LISTS, *_SINGLE, *_MORE_LISTS):
            given: Any = self.spec.get(key)
            at = join(self.at, key)
            if is_list(given):
                for index, each in enumerate(given):
                    yield from self._container(key, f"{at}[{index}]", each)
            else:
                # A single container, or a list of one that lost its brackets.
                yield from self._container(key, at, given)

    def _container(self, key: str, at: str, given: Any) -> Iterator[Container]:
        if isinstance(given, Mapping):
            yield Container(self, at, key, given)
        elif is_unknown(given):
            yield Container(self, at, key, {}, str(given.reason))

    def violation(self, inner: str, reason: str) -> Finding:
        """A certain finding at a path of its spec."""
        return self.manifest.violation(join(self.at, inner), reason)

    def indeterminate(self, inner: str, reason: str) -> Finding:
        """A finding about what can't be seen at a path of its spec."""
        return self.manifest.indeterminate(join(self.at, inner), reason)


@dataclass(frozen=True)
class Container:
    """One container of a pod."""

    pod: Pod
    at: str
    """Path in the object."""
    list: str
    """The list that it stands in, as ``initContainers``."""
    body: Mapping[str, Any]
    hidden: str = ""
    """Why it can't be seen; empty where it can."""

    def get(self, path: str) -> Any:
        """What is at a path of it, or ABSENT."""
        return get(self.body, path)

    @property
    def name(self) -> str:
        """Its name; ``unnamed`` where it has none or it can't be seen."""
        return text(self.get("name")) or "unnamed"

    @property
    def is_sidecar(self) -> bool:
        """Whether it is an init container that keeps running."""
        return self.list == "initContainers" and text(self.get("restartPolicy")) == "Always"

    def violation(self, inner: str, reason: str) -> Finding:
        """A certain finding at a path of the container."""
        return self.pod.manifest.violation(join(self.at, inner), reason)

    def indeterminate(self, inner: str, reason: str) -> Finding:
        """A finding about what can't be seen at a path of the container."""
        return self.pod.manifest.indeterminate(join(self.at, inner), reason)


def pods(manifest: Manifest) -> Iterator[Pod]:
    """Every pod that an object would start."""
    if manifest.kind in TEMPLATES and manifest.group in _OWN_GROUPS:
        template = TEMPLATES[manifest.kind]
        holder = manifest.get(template) if template else manifest.body
        yield from _known(manifest, template, holder)
    elif manifest.is_searched:
        yield from _anywhere(manifest, manifest.body, ())


def _known(manifest: Manifest, template: str, holder: Any) -> Iterator[Pod]:
    spec = get(holder, "spec") if isinstance(holder, Mapping) else holder
    at = join(template, "spec")
    if is_unknown(spec):
        yield Pod(manifest, at, {}, hidden=str(spec.reason))
    elif isinstance(spec, Mapping):
        metadata = get(holder, "metadata")
        known = metadata if isinstance(metadata, Mapping) else {}
        where = join(template, "metadata")
        yield Pod(manifest, at, spec, where, known, is_partial=manifest.is_patch)


def _anywhere(manifest: Manifest, value: Any, path: Path) -> Iterator[Pod]:
    """Pods in a custom object: mappings with containers, and templates that can't be seen."""
    if isinstance(value, Mapping):
        if path and is_object(value):
            return  # An object of its own, which is judged as one.
        if kind := _pod_like(value):
            partial = manifest.is_patch or kind != "whole" or manifest.group in _MERGING_GROUPS
            yield Pod(manifest, spell(path), value, is_partial=partial, is_bare=kind == "bare")
        holder = value.get("metadata")
        for key, each in value.items():
            at = (*path, str(key))
            if str(key) in _NO_PODS or (kind and str(key) in CONTAINER_LISTS):
                continue
            if str(key) == "spec" and isinstance(each, Mapping) and _pod_like(each) == "whole":
                known = holder if isinstance(holder, Mapping) else {}
                where = join(spell(path), "metadata")
                partial = manifest.is_patch or manifest.group in _MERGING_GROUPS
                yield Pod(manifest, spell(at), each, where, known, is_partial=partial)
                yield from _below(manifest, each, at)
            elif isinstance(each, Unknown):
                if str(key) in {"template", "podTemplate", "podSpec"}:
                    yield Pod(manifest, spell(at), {}, hidden=each.reason)
            else:
                yield from _anywhere(manifest, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _anywhere(manifest, each, (*path, index))


def _below(manifest: Manifest, value: Mapping[str, Any], path: Path) -> Iterator[Pod]:
    for key, each in value.items():
        if str(key) not in CONTAINER_LISTS and str(key) not in _NO_PODS:
            yield from _anywhere(manifest, each, (*path, str(key)))


def _pod_like(value: Mapping[str, Any]) -> str:
    """``whole`` for a pod's spec, ``partial`` for something like one, else empty."""
    if any(_holds_containers(value.get(key)) for key in CONTAINER_LISTS):
        return "whole"
    if any(_is_container(value.get(key)) for key in _SINGLE):
        return "partial"
    if any(
        is_list(value.get(key)) and any(_is_container(each) for each in value[key])
        for key in _MORE_LISTS
    ):
        return "partial"
    return "bare" if _is_bare(value) else ""


def _is_bare(value: Mapping[str, Any]) -> bool:
    """Whether a part of a custom object is settings of a pod that its operator makes."""
    env, volumes = value.get("env"), value.get("volumes")
    return (
        isinstance(value.get("securityContext"), Mapping)
        or any(key in value for key in ("hostNetwork", "hostPID", "hostIPC"))
        or (
            is_list(env)
            and any(isinstance(each, Mapping) and "name" in each for each in items(env))
        )
        or (is_list(volumes) and any(isinstance(each, Mapping) for each in items(volumes)))
    )


def _holds_containers(value: object) -> bool:
    if is_unknown(value):
        return True
    if isinstance(value, Mapping):
        return _is_container(value)
    return is_list(value) and any(
        is_unknown(each) or _is_container(each)
        for each in value  # pyright: ignore[reportGeneralTypeIssues] - is_list says so
    )


def _is_container(value: object) -> bool:
    return isinstance(value, Mapping) and (
        "image" in value or ("name" in value and not isinstance(value.get("name"), Mapping))
    )


@remembered(256)
def pods_of(resource: Resource) -> tuple[Pod, ...]:
    """Every pod that a resource would start."""
    return tuple(each for manifest in manifests(resource) for each in pods(manifest))


def runs(manifest: Manifest) -> bool:
    """Whether an object starts pods of its own."""
    return manifest.kind not in TEMPLATE_KINDS and any(
        not each.is_partial for each in pods(manifest)
    )
