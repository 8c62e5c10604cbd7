"""Checks of rules that look at a pod or a container, and at what holds for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from falaj.policies.model import ABSENT, Check, Context, Finding, Resource, is_true
from falaj.policies.reading.namespaces import Level
from falaj.policies.reading.pods import Container, Pod, pods_of

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


def uses_host_network(pod: Pod) -> bool:
    """Whether it shares its node's network."""
    return is_true(pod.get("hostNetwork"))
