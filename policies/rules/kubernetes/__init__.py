"""Rules of the pack `kubernetes`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.kubernetes import (
    admission,
    backups,
    charts,
    credentials,
    destinations,
    egress,
    gateways,
    images,
    mesh,
    network_policies,
    placement,
    pod_security,
    rbac,
    scalers,
    services,
    settings,
    storage,
    tenants,
)

RULES: tuple[Rule, ...] = (
    *pod_security.RULES,
    *images.RULES,
    *placement.RULES,
    *network_policies.RULES,
    *services.RULES,
    *scalers.RULES,
    *gateways.RULES,
    *mesh.RULES,
    *egress.RULES,
    *destinations.RULES,
    *storage.RULES,
    *tenants.RULES,
    *settings.RULES,
    *rbac.RULES,
    *credentials.RULES,
    *charts.RULES,
    *admission.RULES,
    *backups.RULES,
)
