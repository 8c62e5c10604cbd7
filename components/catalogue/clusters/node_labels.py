"""Labels by which nodes say where they are.

https://kubernetes.io/docs/reference/labels-annotations-taints/
"""

from typing import Final

REGION: Final = "topology.kubernetes.io/region"
ZONE: Final = "topology.kubernetes.io/zone"
REGION_KEYS: Final = frozenset({REGION, "failure-domain.beta.kubernetes.io/region"})
ZONE_KEYS: Final = frozenset({
    ZONE, "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone", "topology.disk.csi.azure.com/zone",
    "topology.k8s.aws/zone-id", "topology.gke.io/zone",
})  # fmt: skip
