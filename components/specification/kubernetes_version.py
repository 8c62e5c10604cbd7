"""Which minor versions of Kubernetes a cluster and its pools may have."""

from __future__ import annotations

from falaj.components.specification.limits import OneOf

DEFAULT = "1.35"
#: What both clouds' supported-version tables and the platform's charts have in common: 1.34 is the
#: first with `resource.k8s.io/v1`, 1.36 the newest that AKS lists as generally available
#: (learn.microsoft.com/azure/aks/supported-kubernetes-versions, June 2026).
VERSIONS = OneOf(("1.34", "1.35", "1.36"))
