"""Namespaces: exempt ones are made, and marks of all are changed, by who may change policies."""

from falaj.components.kubernetes._placed import DATA_CLASS_LABEL, TENANT_LABEL
from falaj.components.kubernetes.admission.expressions import text, texts, when
from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.policy import Check, Policy, Target
from falaj.components.kubernetes.admission.rights import MAY_CHANGE_POLICIES

_ENFORCE = "pod-security.kubernetes.io/enforce"
#: Marks by which quotas, network policies and this admission tell namespaces apart.
_MARKS = (TENANT_LABEL, DATA_CLASS_LABEL, "istio.io/dataplane-mode")


def policies(home: Home) -> tuple[Policy, ...]:
    """What namespaces are called, which standard they enforce, and whose they are."""
    name = "object.metadata.name"
    old = 'oldObject.metadata.?labels[?k].orValue("")'
    new = 'object.metadata.?labels[?k].orValue("")'
    level = f'object.metadata.?labels[?{text(_ENFORCE)}].orValue("")'
    exempt = f"{name} in {texts(home.platform | {'default'})}"
    with_nodes = f"{name} in {texts(home.with_nodes | {'default'})}"
    # The audit log's part of a policy can't ask for rights, so that a condition does.
    others = {"may-not-change-policies": f"!{MAY_CHANGE_POLICIES}"}
    return (
        Policy(
            "namespaces",
            (Target("", "v1", ("namespaces",)),),
            (
                Check(
                    "kubernetes-namespace-pod-security",
                    when(
                        f'!({with_nodes}) && {level} != "restricted"',
                        f'({level} == "" ? "none" : {level})',
                    ),
                    "the namespace enforces another Pod Security Standard", "restricted",
                    f"label it {_ENFORCE}=restricted",
                ),
            ),
        ),
        Policy(
            "exempt-namespaces",
            (Target("", "v1", ("namespaces",), ("CREATE",)),),
            (
                Check(
                    "cluster-exempt-namespace", f"{exempt} ? [{name}] : []",
                    "policies are exempt for namespaces of this name",
                    "other names", "take another name, or let an administrator make it",
                ),
            ),
            conditions=others,
        ),
        Policy(
            "namespace-marks",
            (Target("", "v1", ("namespaces",), ("UPDATE",)),),
            (
                Check(
                    "cluster-namespace-marks",
                    f"{texts(_MARKS)}.filter(k, {old} != {new})",
                    "marks of the namespace are changed",
                    "labels of one's own", "let an administrator change them",
                ),
            ),
            conditions=others,
        ),
    )  # fmt: skip
