"""What the blueprints in a cloud share: its components, its provider, its owner."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from pydantic import BaseModel

from falaj.components import catalogue
from falaj.components.specification.placed import PlacedArgs
from falaj.stacks.errors import StackError
from falaj.stacks.settings import CloudSettings


@dataclass(frozen=True)
class Cloud:
    """The chosen place: its components (the same names in every cloud) and what they all take."""

    place: catalogue.Place
    components: Any
    """The cloud's package, or what only checks arguments in its place."""
    common: PlacedArgs
    options: pulumi.ResourceOptions
    unknown: Any = None
    """Where a stack is only validated: what stands for outputs. None: it is really declared."""

    def args(self, section: BaseModel | None = None, /, **inputs: Any) -> dict[str, Any]:
        """Arguments of a component: the common ones, a settings section's, and ``inputs``.

        Keys that the stack leaves out, and inputs that are None, take the component's default.
        """
        given: dict[str, Any] = section.model_dump(exclude_none=True) if section else {}
        return {
            **self.common,
            **given,
            **{name: value for name, value in inputs.items() if value is not None},
        }

    def export(self, name: str, value: object) -> None:
        """Make ``value`` an output of the stack."""
        if self.unknown is None:
            pulumi.export(name, value)

    def on(self, cloud: str, value: pulumi.Output[Any]) -> pulumi.Output[Any] | None:
        """``value`` where only that cloud knows it, None elsewhere."""
        return value if self.place.cloud == cloud else None


def open_cloud(settings: CloudSettings, place: catalogue.Place) -> Cloud:
    """Load the components of the place's cloud and make its pinned provider.

    Raises:
        StackError: the cloud's SDK is not installed.
    """
    try:
        components = importlib.import_module(f"falaj.components.{place.cloud}")
        region_provider = components.RegionProvider  # the first that needs the SDK
    except ModuleNotFoundError as error:
        if error.name and error.name.startswith("falaj."):
            raise
        raise StackError(
            f"stacks on {place.cloud} need its SDK ({error.name} is missing); install it with: "
            f"python3 engine/environment.py --extra {place.cloud}"
        ) from None
    provider = region_provider(place.cloud, {"region": place.region})
    options = pulumi.ResourceOptions(providers=[provider])
    return Cloud(place, components, common_arguments(settings, place), options)


def common_arguments(settings: CloudSettings, place: catalogue.Place) -> PlacedArgs:
    """What every component of the stack takes."""
    common: PlacedArgs = {
        "region": place.region,
        "tenant": settings.tenant,
        "owner": settings.owner,
        "data_class": settings.data_class,
        "cost_center": settings.cost_center,
        "environment": settings.environment,
    }
    accepted = settings.acknowledged.get(place.region)
    if accepted is not None:
        common["acknowledge_degraded"] = accepted
    return common


def first(values: pulumi.Output[Mapping[str, str]]) -> pulumi.Output[str]:
    """The entry of the first zone: where one subnet is enough."""
    return values.apply(lambda found: found[min(found)])
