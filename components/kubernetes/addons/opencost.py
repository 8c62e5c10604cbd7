"""OpenCost: what tenants' pods cost, by the catalogue's prices or the site's own.

Values: https://github.com/opencost/opencost-helm-chart/blob/main/charts/opencost/values.yaml
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.kubernetes._placed import CLOUDS, InCluster
from falaj.components.kubernetes._pods import unprivileged_alone
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    MONITORING,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between

_NAMESPACE: Final = "opencost"
#: A node's price is split between cores and memory as OpenCost's own default does: 1 core costs
#: as much as about 7.5 GiB (0.031611 to 0.004237 USD per hour, opencost configs/default.json).
_GIB_PER_CORE: Final = 0.031611 / 0.004237
_PRICE: Final = Between(0, math.inf, unit="USD per hour")


@described
class OpenCostOptions(TypedDict):
    """Options of ``opencost``; prices in USD per hour."""

    gpu_model: NotRequired[str]
    """Model whose price in the catalogue a GPU costs, such as ``H200``: OpenCost knows one
    price of a GPU. Needed without ``gpu``; has no meaning on an ``existing`` cluster."""
    gpu: NotRequired[Annotated[float, _PRICE]]
    """Price of a GPU. Needed on an ``existing`` cluster, and wherever the catalogue has none."""
    cpu: NotRequired[Annotated[float, _PRICE]]
    """Price of a core; likewise."""
    memory_gib: NotRequired[Annotated[float, _PRICE]]
    """Price of a GiB of memory; likewise."""


def prices(placed: InCluster, options: Mapping[str, Any]) -> dict[str, float | None]:
    """Prices per hour of a core, a GiB and a GPU; None where nothing says.

    The catalogue's are of whole machines: of one without GPUs for cores and memory, and of GPUs
    what a machine costs beyond its cores and memory.
    """
    found: dict[str, float | None] = {
        key: float(options[key]) if options[key] is not None else None
        for key in ("cpu", "memory_gib", "gpu")
    }
    cloud = CLOUDS.get(placed.distribution)
    if cloud is None:
        return found
    machines = catalogue.place(cloud, placed.region).machines()
    priced = [
        (float(each.usd_per_hour), float(each.vcpu), float(each.memory_gib), each)
        for each in machines
        if each.usd_per_hour is not None and each.vcpu and each.memory_gib
    ]
    plain = [
        usd / (cores + memory / _GIB_PER_CORE)
        for usd, cores, memory, machine in priced
        if machine.gpu is None
    ]
    if plain and found["cpu"] is None:
        found["cpu"] = round(min(plain), 6)
    core = found["cpu"]
    if core is not None and found["memory_gib"] is None:
        found["memory_gib"] = round(core / _GIB_PER_CORE, 6)
    gpus = [
        (usd - cores * (core or 0) - memory * (found["memory_gib"] or 0))
        / float(machine.gpu_count)
        for usd, cores, memory, machine in priced
        if machine.gpu and machine.gpu.model == options["gpu_model"]
    ]
    if gpus and found["gpu"] is None:
        found["gpu"] = round(max(0.0, min(gpus)), 4)
    return found


def _check(options: OptionsChecker, placed: InCluster) -> None:
    for option, price in prices(placed, options.checked(OpenCostOptions)).items():
        if price is None:
            options.say(
                option,
                f"missing; the catalogue has no such price for {placed.region}: give it in USD "
                "per hour, or leave the add-on out with false",
            )


def _values(spec: PlatformSpec) -> dict[str, Values]:
    known = prices(spec.placed, spec.options("opencost"))
    model = {"CPU": known["cpu"], "RAM": known["memory_gib"], "GPU": known["gpu"]}
    context = unprivileged_alone(runAsNonRoot=True, runAsUser=10001)
    return {
        "opencost": {
            "opencost": {
                "exporter": {
                    "defaultClusterId": spec.name,
                    "image": {"fullImageName": spec.images["opencost"]},
                    "resources": resources("50m", "1Gi"),
                    "securityContext": context,
                    # No list of prices is fetched from a cloud's public endpoint.
                    "cloudProviderApiKey": "",
                    "extraEnv": {"CLOUD_COST_ENABLED": "false"},
                },
                "customPricing": {
                    "enabled": True,
                    "provider": "custom",
                    "costModel": {
                        "description": "USD per hour, from Falaj's catalogue or the site",
                        **{key: f"{value}" for key, value in model.items()},
                        "spotCPU": f"{known['cpu']}",
                        "spotRAM": f"{known['memory_gib']}",
                        "storage": "0",
                        "zoneNetworkEgress": "0",
                        "regionNetworkEgress": "0",
                        "internetNetworkEgress": "0",
                    },
                },
                "cloudCost": {"enabled": False},
                "prometheus": {
                    "internal": {
                        "enabled": True,
                        "serviceName": "monitoring-prometheus",
                        "namespaceName": MONITORING,
                        "port": 9090,
                    }
                },
                "ui": {"enabled": False},
                "nodeSelector": spec.node_selector,
            },
            "podSecurityContext": {"runAsNonRoot": True, "fsGroup": 10001},
        }
    }


OPENCOST: Final = Addon(
    name="opencost",
    summary="what each tenant's pods cost",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("opencost", "opencost", _NAMESPACE),),
    options=OpenCostOptions,
    check=_check,
    images=lambda spec: ("opencost",),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(scrapes=(9003,), calls={MONITORING: (9090,)})},
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/name": "opencost"}, 9003),),
    needs=(MONITORING,),
)
