"""The platform's add-ons, one module for each, in the order in which they are installed.

A new add-on is a module with an `Addon` (charts, values, namespaces, traffic, options and their
check), its entry in `ADDONS`, its charts and images in ``data/charts.yaml`` and
``data/images.yaml``, its namespaces in ``admission/policy.py`` or
``catalogue/clusters.py`` (CONTRIBUTING.md says which), and its name in the text of
`PlatformArgs`.
"""

from __future__ import annotations

from typing import Final

from falaj.components.kubernetes.addons.addon import Addon
from falaj.components.kubernetes.addons.aws_load_balancer_controller import (
    AWS_LOAD_BALANCER_CONTROLLER,
)
from falaj.components.kubernetes.addons.cert_manager import CERT_MANAGER
from falaj.components.kubernetes.addons.cluster_autoscaler import CLUSTER_AUTOSCALER_ADDON
from falaj.components.kubernetes.addons.efa import EFA
from falaj.components.kubernetes.addons.envoy_gateway import ENVOY_GATEWAY
from falaj.components.kubernetes.addons.external_secrets import EXTERNAL_SECRETS
from falaj.components.kubernetes.addons.gpu_operator import GPU_OPERATOR
from falaj.components.kubernetes.addons.istio import ISTIO
from falaj.components.kubernetes.addons.jobset import JOBSET
from falaj.components.kubernetes.addons.keda import KEDA
from falaj.components.kubernetes.addons.kserve import KSERVE
from falaj.components.kubernetes.addons.kueue import KUEUE
from falaj.components.kubernetes.addons.monitoring import PROMETHEUS
from falaj.components.kubernetes.addons.network_operator import NETWORK_OPERATOR
from falaj.components.kubernetes.addons.node_repair import NODE_REPAIR_ADDON
from falaj.components.kubernetes.addons.opencost import OPENCOST
from falaj.components.kubernetes.addons.resolver import RESOLVER
from falaj.components.kubernetes.addons.trainer import TRAINER
from falaj.components.kubernetes.addons.velero import VELERO

ADDONS: Final[dict[str, Addon]] = {
    addon.name: addon
    for addon in (
        CERT_MANAGER, EXTERNAL_SECRETS, PROMETHEUS, GPU_OPERATOR, EFA, NETWORK_OPERATOR, JOBSET,
        KUEUE, TRAINER, AWS_LOAD_BALANCER_CONTROLLER, ENVOY_GATEWAY, ISTIO, KEDA, KSERVE,
        OPENCOST, VELERO, NODE_REPAIR_ADDON, RESOLVER, CLUSTER_AUTOSCALER_ADDON,
    )
}  # fmt: skip
"""By name. An add-on comes after those that it needs or follows."""
