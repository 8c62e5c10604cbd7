"""Pods as the API server gets them: by themselves, and as templates of every kind that has one.

Templates are judged as well, so that whoever writes one is told at once; of kinds that the cluster
was extended by, the pods that they make are judged.

Rules that are demands on single fields are declared in the catalogue; `refused` renders them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from falaj.components.catalogue.pod_rules import POD_RULES, Field, PodRule
from falaj.components.kubernetes.admission.expressions import CONTAINER_LISTS, literal, text
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

DAEMON_SETS = (
    'request.userInfo.username in ["system:serviceaccount:kube-system:daemon-set-controller", '
    '"system:kube-controller-manager"]'
)
"""Whether the controller of DaemonSets asks, whose pods are bound to a node each."""


@dataclass(frozen=True)
class Shape:
    """Where objects of some kinds have a pod."""

    name: str
    targets: tuple[Target, ...]
    pod: str
    """Path of the pod's spec."""
    labels: str
    """The pod's labels, a map."""
    has: str = ""
    """Whether there is a template, for kinds that may lack one."""

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod itself."""
        return self.name == "pods"


SHAPES = (
    Shape(
        "pods", (Target("", "v1", ("pods", "pods/ephemeralcontainers")),), "object.spec",
        "object.metadata.?labels.orValue({})",
    ),
    Shape(
        "templates",
        (
            Target("apps", "v1", ("deployments", "statefulsets", "daemonsets", "replicasets")),
            Target("batch", "v1", ("jobs",)),
            Target("", "v1", ("replicationcontrollers",)),
        ),
        "object.spec.template.spec", "object.spec.template.?metadata.?labels.orValue({})",
        "has(object.spec.template)",
    ),
    Shape(
        "cron-jobs", (Target("batch", "v1", ("cronjobs",)),),
        "object.spec.jobTemplate.spec.template.spec",
        "object.spec.jobTemplate.spec.template.?metadata.?labels.orValue({})",
    ),
    Shape(
        "pod-templates", (Target("", "v1", ("podtemplates",)),), "object.template.spec",
        "object.template.?metadata.?labels.orValue({})", "has(object.template)",
    ),
)  # fmt: skip


@dataclass(frozen=True)
class PodPolicy:
    """A policy about pods, before it is made for each shape."""

    name: str
    checks: Callable[[Shape], tuple[Check, ...]]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    exempt: frozenset[str] = frozenset()

    def policies(self) -> tuple[Policy, ...]:
        """One policy for each shape: expressions are checked against the types of its kinds."""
        return tuple(
            Policy(
                f"{self.name}-{shape.name}",
                shape.targets,
                self.checks(shape),
                {"pod": shape.pod, **self.variables},
                {"has-a-template": shape.has} if shape.has else {},
                self.exempt,
            )
            for shape in SHAPES
        )


def refused(policy: str, condition: str = "") -> tuple[Check, ...]:
    """The checks of the catalogue's rules that one policy refuses.

    Args:
        policy: what the rules call it in their `admission`.
        condition: a CEL expression that must hold for an object to be judged. Default: all are.
    """
    return tuple(check_of(each, condition) for each in POD_RULES if each.admission == policy)


def check_of(rule: PodRule, condition: str = "") -> Check:
    """The check of a declared rule; see `refused`."""
    wrong = " + ".join(part for each in rule.fields for part in unmet(each))
    change = rule.remediation[0].lower() + rule.remediation[1:].rstrip(".")
    conditions = [condition] if condition else []
    if rule.linux_only:
        conditions.append('variables.pod.?os.?name.orValue("") != "windows"')
    if conditions:
        wrong = f"({' && '.join(conditions)} ? {wrong} : [])"
    return Check(rule.id, wrong, rule.title, rule.allowed, change)


def unmet(field: Field) -> Iterable[str]:
    """CEL expressions for what doesn't have a field as it must be, each a list of texts."""
    if field.scope != "containers":
        yield _unmet_of("variables.pod", field)
    if field.scope != "pod":
        for each in CONTAINER_LISTS:
            containers = f"variables.pod.?{each}.orValue([])"
            if "[]" in field.path:
                found = f'{_unmet_of("c", field)}.join(", ")'
                yield f'{containers}.map(c, {found}).filter(s, s != "")'
            else:
                wrong, said = _is_wrong("c", field.path, field), _said("c", field.path, field)
                yield f"{containers}.filter(c, {wrong}).map(c, {said})"


def _unmet_of(holder: str, field: Field) -> str:
    """The same of a pod, or of a container's list, in a variable of CEL."""
    before, is_list, after = field.path.partition("[]")
    if not is_list:
        wrong, said = _is_wrong(holder, before, field), _said(holder, before, field)
        return f"({wrong} ? [{said}] : [])"
    wrong, said = _is_wrong("i", after[1:], field), _said("i", after[1:], field, holder)
    return f"{holder}.{_optional(before)}.orValue([]).filter(i, {wrong}).map(i, {said})"


def _optional(path: str) -> str:
    return ".".join(f"?{key}" for key in path.split("."))


def _is_wrong(holder: str, path: str, field: Field) -> str:
    """Whether a field isn't as it must be; an item of a list has an empty path."""
    values = "[" + ", ".join(map(literal, field.values)) + "]"
    here = f"{holder}.{_optional(path)}" if path else ""
    if field.operator == "DoesNotExist":
        wrong = f"{here}.hasValue()"
    elif field.operator == "NotIn":
        wrong = (
            f"{here}.hasValue() && {holder}.{path} in {values}"
            if path
            else f"{holder} in {values}"
        )
    elif field.is_required:
        wrong = f"!({here}.hasValue() && {holder}.{path} in {values})"
    else:
        value = f"{here}.orValue({literal(field.values[0])})" if path else holder
        wrong = f"!({value} in {values})"
    if field.unless:
        return f"!variables.pod.{_optional(field.unless)}.orValue(false) && {wrong}"
    return wrong


def _said(holder: str, path: str, field: Field, container: str = "") -> str:
    """The reason, with the container's name and the field's value in it."""
    below = ".".join(each for each in (path, field.detail) if each)
    value = f"{holder}.{path}"
    if field.detail:
        value = f"{holder}.{_optional(below)}.orValue({text('a ' + field.key)})"
    words = {
        "{container}": f"{container or holder}.name",
        "{value}": f"string({value if below else holder})",
    }
    parts = (each for each in re.split(r"({\w+})", field.reason) if each)
    return " + ".join(words.get(each) or text(each) for each in parts)
