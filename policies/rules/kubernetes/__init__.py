"""Rules of the pack `kubernetes`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.kubernetes import (
    admission,
    backups,
    charts,
    containers,
    credentials,
    egress,
    gateways,
    host_isolation,
    hosts_served,
    images,
    kernel_isolation,
    mesh,
    model_sources,
    network_policies,
    placement,
    rbac,
    restricted_data,
    scheduling,
    services,
    settings,
    storage,
    unprivileged_users,
)

RULES: tuple[Rule, ...] = (
    *host_isolation.RULES,
    *kernel_isolation.RULES,
    *unprivileged_users.RULES,
    *containers.RULES,
    *images.RULES,
    *placement.RULES,
    *scheduling.RULES,
    *network_policies.RULES,
    *services.RULES,
    *gateways.RULES,
    *hosts_served.RULES,
    *mesh.RULES,
    *egress.RULES,
    *model_sources.RULES,
    *storage.RULES,
    *backups.RULES,
    *settings.RULES,
    *rbac.RULES,
    *credentials.RULES,
    *charts.RULES,
    *admission.RULES,
    *restricted_data.RULES,
)
