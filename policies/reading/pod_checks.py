"""Checks of rules that look at a pod or a container, and of fields that the catalogue declares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from falaj.components.catalogue.clusters.pod_rules import Field, PodRule, Value
from falaj.policies.model import (
    ABSENT,
    Check,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
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
from falaj.policies.reading.kubernetes import ANY_OBJECT
from falaj.policies.reading.namespaces import Level
from falaj.policies.reading.pods import Container, Pod, pods_of
from falaj.policies.reading.said import said

PodCheck = Callable[[Pod, View], Iterator[Finding]]
ContainerCheck = Callable[[Container, View], Iterator[Finding]]


def each_pod(level: Level = Level.PRIVILEGED) -> Callable[[PodCheck], Check]:
    """Make a rule's check of one that looks at a pod; pods that can't be seen are findings.

    Args:
        level: pods that need meet less than this standard aren't looked at. Default: all are.
    """

    def decorate(check: PodCheck) -> Check:
        @wraps(check)
        def whole(resource: Resource, view: View) -> Iterator[Finding]:
            for pod in pods_of(resource):
                if pod.level < level:
                    continue
                if pod.hidden:
                    yield pod.indeterminate("", f"the pod {pod.hidden}")
                else:
                    yield from check(pod, view)

        return whole

    return decorate


def each_container(level: Level = Level.PRIVILEGED) -> Callable[[ContainerCheck], Check]:
    """Make a rule's check of one that looks at a container; see `each_pod`."""

    def decorate(check: ContainerCheck) -> Check:
        @each_pod(level)
        @wraps(check)
        def whole(pod: Pod, view: View) -> Iterator[Finding]:
            for container in pod.containers:
                if container.hidden:
                    yield container.indeterminate("", f"the container {container.hidden}")
                else:
                    yield from check(container, view)

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
    def check(pod: Pod, view: View) -> Iterator[Finding]:
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
    return field.reason.replace("{container}", said(name)).replace("{value}", said(value))


def _is(value: object, wanted: Value) -> bool:
    """Whether a value is one that a declaration names, in the forms that SDKs give it."""
    if isinstance(wanted, bool):
        return is_true(value) if wanted else is_false(value)
    if isinstance(wanted, int):
        return number(value) == wanted
    return value == wanted
