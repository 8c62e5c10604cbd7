"""Where objects of each kind have a pod, and policies about pods of whatever kind.

The API server gets pods by themselves, and as templates of every kind that has one. Templates
are judged as well, so that whoever writes one is told at once; of kinds that the cluster was
extended by, the pods that they make are judged.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from falaj.components.kubernetes.admission.policy import ASKER, Check, Policy, Target

DAEMON_SETS = (
    f'{ASKER} in ["system:serviceaccount:kube-system:daemon-set-controller", '
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
    conditions: Mapping[str, str] = field(default_factory=dict[str, str])
    """What must hold for a policy to look at an object."""

    def policies(self) -> tuple[Policy, ...]:
        """One policy for each shape: expressions are checked against the types of its kinds."""
        return tuple(
            Policy(
                f"{self.name}-{shape.name}",
                shape.targets,
                self.checks(shape),
                {"pod": shape.pod, **self.variables},
                {**({"has-a-template": shape.has} if shape.has else {}), **self.conditions},
                self.exempt,
            )
            for shape in SHAPES
        )
