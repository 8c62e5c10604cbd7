"""Every pod that an object would start, its containers, and checks of rules that look at them.

Pods stand at known places in Kubernetes' own kinds. In custom resources they stand anywhere: a
mapping with a list of containers is a pod's specification, wherever it is.

Rules that are demands on single fields are declared in the catalogue; `declared` makes the pack's
rule of a declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, Final

from falaj.components.catalogue.pod_rules import CONTAINER_LISTS, Field, PodRule, Value
from falaj.policies.model import (
    ABSENT,
    Check,
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_false,
    is_list,
    is_true,
    is_unknown,
    items,
    number,
    rule,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.model.values import Unknown
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Level,
    Manifest,
    is_object,
    join,
    level_of,
    manifests,
)
from falaj.wire.documents import is_mapping, mapping

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
#: Kinds that describe pods which other objects then start.
TEMPLATE_KINDS: Final = frozenset({
    "PodTemplate", "ClusterServingRuntime", "ServingRuntime", "ClusterTrainingRuntime",
    "TrainingRuntime", "WorkflowTemplate", "ClusterWorkflowTemplate", "LLMInferenceServiceConfig",
})  # fmt: skip
#: Never searched: what describes types, or is written by the cluster.
NOT_SEARCHED: Final = frozenset({"status", "openAPIV3Schema", "metadata"})


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
        if is_mapping(given):
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
    spec = get(holder, "spec") if is_mapping(holder) else holder
    at = join(template, "spec")
    if is_unknown(spec):
        yield Pod(manifest, at, {}, hidden=str(spec.reason))
    elif is_mapping(spec):
        metadata = get(holder, "metadata")
        known = mapping(metadata)
        where = join(template, "metadata")
        yield Pod(manifest, at, spec, where, known, is_partial=manifest.is_patch)


def _anywhere(manifest: Manifest, value: Any, path: Path) -> Iterator[Pod]:
    """Pods in a custom object: mappings with containers, and templates that can't be seen."""
    if is_mapping(value):
        if path and is_object(value):
            return  # An object of its own, which is judged as one.
        if kind := _pod_like(value):
            partial = manifest.is_patch or kind != "whole" or manifest.group in _MERGING_GROUPS
            yield Pod(
                manifest, format_path(path), value, is_partial=partial, is_bare=kind == "bare"
            )
        holder = value.get("metadata")
        for key, each in value.items():
            at = (*path, str(key))
            if str(key) in NOT_SEARCHED or (kind and str(key) in CONTAINER_LISTS):
                continue
            if str(key) == "spec" and is_mapping(each) and _pod_like(each) == "whole":
                known = mapping(holder)
                where = join(format_path(path), "metadata")
                partial = manifest.is_patch or manifest.group in _MERGING_GROUPS
                yield Pod(manifest, format_path(at), each, where, known, is_partial=partial)
                yield from _below(manifest, each, at)
            elif isinstance(each, Unknown):
                if str(key) in {"template", "podTemplate", "podSpec"}:
                    yield Pod(manifest, format_path(at), {}, hidden=each.reason)
            else:
                yield from _anywhere(manifest, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _anywhere(manifest, each, (*path, index))


def _below(manifest: Manifest, value: Mapping[str, Any], path: Path) -> Iterator[Pod]:
    for key, each in value.items():
        if str(key) not in CONTAINER_LISTS and str(key) not in NOT_SEARCHED:
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
        is_mapping(value.get("securityContext"))
        or any(key in value for key in ("hostNetwork", "hostPID", "hostIPC"))
        or (is_list(env) and any(is_mapping(each) and "name" in each for each in items(env)))
        or (is_list(volumes) and any(is_mapping(each) for each in items(volumes)))
    )


def _holds_containers(value: object) -> bool:
    if is_unknown(value):
        return True
    if is_mapping(value):
        return _is_container(value)
    return is_list(value) and any(
        is_unknown(each) or _is_container(each)
        for each in value  # pyright: ignore[reportGeneralTypeIssues] - is_list says so
    )


def _is_container(value: object) -> bool:
    return is_mapping(value) and (
        "image" in value or ("name" in value and not is_mapping(value.get("name")))
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


PodCheck = Callable[[Pod, Context], Iterator[Finding]]
ContainerCheck = Callable[[Container, Context], Iterator[Finding]]


def each_pod(level: Level = Level.PRIVILEGED) -> Callable[[PodCheck], Check]:
    """Make a rule's check of one that looks at a pod; pods that can't be seen are findings.

    Args:
        level: pods that need meet less than this standard aren't looked at. Default: all are.
    """

    def decorate(check: PodCheck) -> Check:
        @wraps(check)
        def whole(resource: Resource, context: Context) -> Iterator[Finding]:
            for pod in pods_of(resource):
                if pod.level < level:
                    continue
                if pod.hidden:
                    yield pod.indeterminate("", f"the pod {pod.hidden}")
                else:
                    yield from check(pod, context)

        return whole

    return decorate


def each_container(level: Level = Level.PRIVILEGED) -> Callable[[ContainerCheck], Check]:
    """Make a rule's check of one that looks at a container; see `each_pod`."""

    def decorate(check: ContainerCheck) -> Check:
        @each_pod(level)
        @wraps(check)
        def whole(pod: Pod, context: Context) -> Iterator[Finding]:
            for container in pod.containers:
                if container.hidden:
                    yield container.indeterminate("", f"the container {container.hidden}")
                else:
                    yield from check(container, context)

        return whole

    return decorate


def setting(container: Container, path: str) -> tuple[Any, bool]:
    """A setting of the security context as it holds for a container, and whether the pod says it.

    The container's own goes before the pod's.
    """
    own = container.get(f"securityContext.{path}")
    if own is not ABSENT:
        return own, False
    return container.pod.get(f"securityContext.{path}"), True


def declared(given: PodRule) -> Rule:
    """The pack's rule of a declaration that the cluster's admission reads as well."""

    @rule(
        given.id,
        given.title,
        Severity(given.severity),
        ANY_OBJECT,
        given.controls,
        given.remediation,
    )
    @each_pod(Level[given.standard.upper()])
    def check(pod: Pod, context: Context) -> Iterator[Finding]:
        for each in given.fields:
            yield from unmet(pod, each, linux_only=given.linux_only)

    return check


def unmet(pod: Pod, field: Field, *, linux_only: bool = False) -> Iterator[Finding]:
    """Where a pod, or a container of it, doesn't have a field as it must be, or can't be seen.

    Args:
        pod: one that can be seen itself.
        field: what is demanded.
        linux_only: whether pods on Windows pass.
    """
    if field.unless and is_true(pod.get(field.unless)):
        return
    if field.scope != "containers":
        yield from unmet_of(pod, field)
    for container in pod.containers if field.scope != "pod" else ():
        if not container.hidden:
            if not (linux_only and pod.is_windows):
                yield from unmet_of(container, field)
        elif field.scope == "containers":
            yield container.indeterminate("", f"the container {container.hidden}")


def unmet_of(where: Pod | Container, field: Field) -> Iterator[Finding]:
    """The same of a pod's own field, or of one container's, that can be seen."""
    before, _, after = field.path.partition("[]")
    given = where.get(before)
    if before == field.path or is_unknown(given):
        yield from _judge(where, field, before, given)
        return
    for index, each in enumerate(items(given)):
        at = f"{before}[{index}]" if is_list(given) else before
        if after and not is_unknown(each):
            yield from _judge(where, field, at + after, get(each, after[1:]))
        else:
            yield from _judge(where, field, at, each)


def _judge(where: Pod | Container, field: Field, at: str, value: Any) -> Iterator[Finding]:
    if is_unknown(value):
        yield where.indeterminate(at, f"{field.key} {value.reason}; allowed: {field.allowed}")
        return
    if value is ABSENT:
        pod = where if isinstance(where, Pod) else where.pod
        if field.is_required and not pod.is_partial:
            reason = f"{_reason(where, field, value)}, as {field.key} isn't set"
            yield where.violation(at, f"{reason}; allowed: {field.allowed}")
        return
    among = any(_is(value, each) for each in field.values)
    if not (field.operator == "In" and among) and (field.operator != "NotIn" or among):
        if field.detail:
            detail = text(get(value, field.detail))
            at, value = (f"{at}.{field.detail}", detail) if detail else (at, f"a {field.key}")
        reason = _reason(where, field, value)
        yield where.violation(at, f"{reason}; allowed: {field.allowed}")


def _reason(where: Pod | Container, field: Field, value: Any) -> str:
    name = where.name if isinstance(where, Container) else ""
    return field.reason.replace("{container}", format_value(name)).replace(
        "{value}", format_value(value)
    )


def _is(value: object, wanted: Value) -> bool:
    """Whether a value is one that a declaration names, in the forms that SDKs give it."""
    if isinstance(wanted, bool):
        return is_true(value) if wanted else is_false(value)
    if isinstance(wanted, int):
        return number(value) == wanted
    return value == wanted
