"""Device plugin of AWS's Elastic Fabric Adapter: ``vpc.amazonaws.com/efa`` as a resource.

Values: https://github.com/aws/eks-charts/blob/master/stable/aws-efa-k8s-device-plugin/values.yaml
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.kubernetes.addons.addon import (
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.node_pools import FABRIC, GPU_TAINT

_NAMESPACE: Final = "efa-device-plugin"


class EfaOptions(TypedDict):
    """``efa`` has no options: pools with ``fabric: efa`` are found by their label."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    return {
        "efa-device-plugin": {
            # The chart's own image is in us-west-2; the region's would be in another account.
            "image": {
                "repository": spec.repository("efa-device-plugin"),
                "tag": spec.tag("efa-device-plugin"),
            },
            "nodeSelector": {**spec.node_selector, FABRIC: "efa"},
            "tolerations": [{"key": GPU_TAINT.key, "operator": "Exists", "effect": "NoSchedule"}],
            "resources": resources("10m", "64Mi"),
        }
    }


EFA: Final = Addon(
    name="efa",
    summary="EFA interfaces as resources of pods",
    namespaces=(
        Namespace(_NAMESPACE, "privileged", "sockets of the kubelet and devices on the host"),
    ),
    releases=(Release("aws-efa-k8s-device-plugin", "efa-device-plugin", _NAMESPACE),),
    options=EfaOptions,
    images=lambda spec: ("efa-device-plugin",),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(api_server=False)},
    distributions=("eks",),
)
