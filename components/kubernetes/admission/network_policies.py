"""Network policies that would undo the default: open to the world, or without effect."""

from falaj.components.kubernetes.admission.expressions import when
from falaj.components.kubernetes.admission.home import CLUSTER, Home
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

_TARGETS = (Target("networking.k8s.io", "v1", ("networkpolicies",)),)
#: A range this large, or larger, is the world: nobody but a registry of addresses holds more.
_MOST_V4, _MOST_V6 = 7, 15


def policies(home: Home) -> tuple[Policy, ...]:
    """Ways out everywhere; ways in outside of the platform's own namespaces."""
    without_effect = when(
        "size(object.spec.?egress.orValue([])) > 0 && size(object.spec.?policyTypes.orValue([])) "
        '> 0 && !("Egress" in object.spec.policyTypes)',
        '"policyTypes lacks Egress, so the rules have no effect"',
    )
    return (
        Policy(
            "egress",
            _TARGETS,
            (
                Check(
                    "kubernetes-open-egress", f"{_open('egress', 'to')} + {without_effect}",
                    "the policy opens a way out to the world",
                    "pods, namespaces and ranges that are named", "name what may be reached",
                ),
            ),
            exempt=CLUSTER,
        ),
        Policy(
            "ingress-policies",
            _TARGETS,
            (
                Check(
                    "kubernetes-open-ingress", _open("ingress", "from"),
                    "the policy lets everyone in", "pods, namespaces and ranges that are named",
                    "name who may come in",
                ),
            ),
            exempt=home.platform,
        ),
    )  # fmt: skip


def _open(direction: str, peers: str) -> str:
    rules = f"object.spec.?{direction}.orValue([])"
    given = f"r.?{peers}.orValue([])"
    size = "cidr(p.ipBlock.cidr).prefixLength()"
    world = (
        "has(p.ipBlock) && isCIDR(p.ipBlock.cidr) && "
        f"(cidr(p.ipBlock.cidr).ip().family() == 4 ? {size} <= {_MOST_V4} : {size} <= {_MOST_V6})"
    )
    return (
        f'{rules}.filter(r, size({given}) == 0).map(r, "a rule without {peers}") + '
        f'{rules}.map(r, {given}.filter(p, {world}).map(p, p.ipBlock.cidr).join(", "))'
        '.filter(s, s != "")'
    )
