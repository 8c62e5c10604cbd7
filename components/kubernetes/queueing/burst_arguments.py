"""Checks of other clusters that jobs go to, and of machines made on demand."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from falaj.components import catalogue
from falaj.components.kubernetes._nested import by_name, object_name, options
from falaj.components.kubernetes._placed import CLOUDS, DISTRIBUTIONS
from falaj.components.kubernetes.queueing.arguments import (
    QueueBurstArgs,
    QueueProvisioningArgs,
    QueueWorkerArgs,
)
from falaj.components.kubernetes.queueing.checks import CLASSES, Burst, Provisioning, Worker
from falaj.components.specification.refusals import Refusals

_QUANTITY: Final = re.compile(r"^\d+(\.\d+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
#: Kueue's limit of clusters in one configuration.
_MOST_WORKERS: Final = 20


def checked_burst(value: object, tenants: Sequence[str], refusals: Refusals) -> Burst | None:
    """Other clusters in the country, one's own before clouds."""
    if value is None:
        return None
    given = options("burst", value, QueueBurstArgs, refusals)
    listed: Any = given.get("workers")
    if not isinstance(listed, list | tuple) or not 1 <= len(listed) <= _MOST_WORKERS:
        refusals.add("burst.workers", listed, f"1 to {_MOST_WORKERS} clusters")
        return None
    workers = [_worker(f"burst.workers[{at}]", each, refusals) for at, each in enumerate(listed)]
    names = [each.name for each in workers]
    for position, each in enumerate(workers):
        at = f"burst.workers[{position}]"
        if each.name in names[:position]:
            refusals.add(f"{at}.name", each.name, "each only once")
        cloud_before = any(one.distribution != "existing" for one in workers[:position])
        if each.distribution == "existing" and cloud_before:
            refusals.add(
                at, each.name, "clusters of one's own before those of clouds",
                "they are asked in this order; move it up",
            )  # fmt: skip
    quotas: dict[str, dict[str, str]] = {}
    for tenant, resources in by_name("burst.quotas", given.get("quotas", {}), refusals).items():
        at = f"burst.quotas[{tenant!r}]"
        if tenant not in tenants:
            refusals.add(at, tenant, f"tenants with a queue: {', '.join(tenants) or 'none'}")
        quotas[tenant] = refusals.mapping(at, resources)
        for resource, most in quotas[tenant].items():
            if not _QUANTITY.match(most):
                refusals.add(f"{at}[{resource!r}]", most, "a quantity such as 32, 500m or 4Ti")
        for needed in ("cpu", "memory"):
            if needed not in quotas[tenant]:
                refusals.say(f"{at}[{needed!r}]", "missing; every job asks for it")
    return Burst(tuple(workers), quotas)


def _worker(at: str, value: object, refusals: Refusals) -> Worker:
    given = options(at, value, QueueWorkerArgs, refusals)
    distribution, region = str(given.get("distribution")), str(given.get("region"))
    refusals.choice(f"{at}.distribution", distribution, DISTRIBUTIONS)
    if distribution == "existing":
        object_name(f"{at}.region", region, refusals)
    elif distribution in CLOUDS:
        # As of the cluster itself: the region is in the country, and works or was accepted.
        try:
            place = catalogue.place(CLOUDS[distribution], region)
            place.require_healthy(given.get("acknowledge_degraded"))
        except catalogue.DegradedRegionError as error:
            refusals.say(f"{at}.acknowledge_degraded", str(error))
        except catalogue.CatalogueError as error:
            refusals.say(f"{at}.region", str(error))
    return Worker(
        object_name(f"{at}.name", given.get("name"), refusals),
        distribution,
        region,
        object_name(f"{at}.kubeconfig_secret", given.get("kubeconfig_secret"), refusals),
    )


def checked_provisioning(
    value: object, flavors: Sequence[str], refusals: Refusals
) -> Provisioning | None:
    """Machines that the autoscaler makes for a gang."""
    if value is None:
        return None
    given = options("provisioning", value, QueueProvisioningArgs, refusals)
    chosen = refusals.texts("provisioning.flavors", given.get("flavors", []))
    if not chosen:
        refusals.add("provisioning.flavors", given.get("flavors"), "at least one pool")
    for position, each in enumerate(chosen):
        if each not in flavors:
            refusals.add(
                f"provisioning.flavors[{position}]", each,
                f"the pools of this cluster: {', '.join(flavors) or 'none'}",
            )  # fmt: skip
    name = given.get("class_name", CLASSES[0])
    refusals.choice("provisioning.class_name", name, CLASSES)
    retries = refusals.whole("provisioning.retries", given.get("retries", 3), 0, 100)
    return Provisioning(str(name), chosen, retries)
