"""The add-ons that a platform can have, in the order in which they are installed."""

from __future__ import annotations

from typing import Final

from components.kubernetes.addons.addon import Addon
from components.kubernetes.addons.cert_manager import CERT_MANAGER
from components.kubernetes.addons.efa import EFA
from components.kubernetes.addons.envoy_gateway import ENVOY_GATEWAY
from components.kubernetes.addons.external_secrets import EXTERNAL_SECRETS
from components.kubernetes.addons.gpu_operator import GPU_OPERATOR
from components.kubernetes.addons.istio import ISTIO
from components.kubernetes.addons.jobset import JOBSET
from components.kubernetes.addons.keda import KEDA
from components.kubernetes.addons.kserve import KSERVE
from components.kubernetes.addons.kueue import KUEUE
from components.kubernetes.addons.monitoring import PROMETHEUS
from components.kubernetes.addons.network_operator import NETWORK_OPERATOR
from components.kubernetes.addons.opencost import OPENCOST
from components.kubernetes.addons.trainer import TRAINER
from components.kubernetes.addons.velero import VELERO

ADDONS: Final[dict[str, Addon]] = {
    addon.name: addon
    for addon in (
        CERT_MANAGER, EXTERNAL_SECRETS, PROMETHEUS, GPU_OPERATOR, EFA, NETWORK_OPERATOR, JOBSET,
        KUEUE, TRAINER, ENVOY_GATEWAY, ISTIO, KEDA, KSERVE, OPENCOST, VELERO,
    )
}  # fmt: skip
"""By name. An add-on comes after those that it needs or follows."""
