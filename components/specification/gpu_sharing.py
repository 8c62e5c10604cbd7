"""How pods share a GPU: whole ones, MIG instances, or time slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falaj.components import catalogue
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import Between
from falaj.components.specification.placed import Placed

LEAST_SLICES, MOST_SLICES = 2, 16
TIME_SLICES = Between(LEAST_SLICES, MOST_SLICES)
_MIG = "mig-"


@dataclass(frozen=True)
class Sharing:
    """What a GPU is divided into."""

    kind: str
    """``none``, ``mig`` or ``time-slicing``."""
    mig_profile: str | None = None
    """Such as ``1g.18gb``."""
    parts: int = 1
    """Pods that fit on one GPU."""

    @property
    def label(self) -> str:
        """Its name in labels: ``mig-1g.18gb``, ``time-slicing-4`` or ``none``."""
        if self.kind == "mig":
            return f"{_MIG}{self.mig_profile}"
        return f"time-slicing-{self.parts}" if self.kind == "time-slicing" else "none"

    @property
    def operator_labels(self) -> dict[str, str]:
        """Labels that tell the GPU operator what to do on a node.

        The MIG manager applies the configuration named by ``nvidia.com/mig.config`` (names of
        mig-parted's own configurations); the device plugin takes the entry of its configuration
        map named by ``nvidia.com/device-plugin.config``, which the platform's values define with
        the same name.
        """
        if self.kind == "mig":
            return {"nvidia.com/mig.config": f"all-{self.mig_profile}"}
        if self.kind == "time-slicing":
            return {"nvidia.com/device-plugin.config": self.label}
        return {}


NOT_SHARED = Sharing("none")


def checked_sharing(
    args: Mapping[str, Any],
    given: Mapping[str, Any],
    placed: Placed,
    machine: catalogue.MachineType,
    errors: ArgumentErrors,
) -> Sharing:
    """How the checked arguments ``sharing`` and ``time_slices`` divide a GPU.

    MIG separates memory and faults in hardware and is allowed for every class of data; time
    slices share one memory, and are not for restricted data.
    """
    sharing: str = args["sharing"]
    slices: object = given.get("time_slices")
    if sharing == "time-slicing":
        if placed.data_class == "restricted":
            errors.add(
                "sharing", sharing, "none or a MIG profile, where data_class is 'restricted'",
                "pods that share a GPU by time-slicing share its memory unprotected",
            )  # fmt: skip
        return Sharing("time-slicing", None, args["time_slices"])
    if slices is not None:
        errors.say(
            "time_slices",
            f"given {slices!r}, but sharing is {sharing!r}; set sharing to 'time-slicing', or "
            "leave time_slices out",
        )
    if sharing == "none":
        return NOT_SHARED
    if not sharing.startswith(_MIG):
        errors.add("sharing", sharing, "none, time-slicing, or a MIG profile as mig-1g.18gb")
        return NOT_SHARED
    return _mig(placed.place.cloud, sharing.removeprefix(_MIG), machine, errors)


def node_resources(machine: catalogue.MachineType, sharing: Sharing) -> dict[str, int]:
    """Extended resources that a node of this machine advertises to the scheduler.

    Names: NVIDIA's device plugin with the MIG strategy ``mixed`` and ``renameByDefault`` for time
    slices. A fraction of a GPU counts as one GPU to its machine.
    """
    gpus = max(1, int(machine.gpu_count))
    if sharing.kind == "mig":
        return {f"nvidia.com/{sharing.label}": gpus * sharing.parts}
    if sharing.kind == "time-slicing":
        return {"nvidia.com/gpu.shared": gpus * sharing.parts}
    return {"nvidia.com/gpu": gpus}


def mig_profiles(cloud: str, machine: catalogue.MachineType) -> dict[str, int]:
    """Profiles that every GPU of the machine can be divided into evenly, and how many fit.

    Those with media extensions (``+me``) fit once on a GPU and would leave the rest of it idle.
    AKS takes the size in compute slices alone (MIG1g, MIG2g …) and gives each the memory that
    goes with it, which is the first of that size.
    """
    found: dict[str, int] = {}
    for profile, most in machine.mig_profiles.items():
        slices = profile.partition(".")[0]
        taken = any(known.startswith(f"{slices}.") for known in found)
        if "+" not in profile and not (cloud == "azure" and taken):
            found[profile] = most
    return found


def _mig(
    cloud: str, profile: str, machine: catalogue.MachineType, errors: ArgumentErrors
) -> Sharing:
    allowed = mig_profiles(cloud, machine)
    if profile in allowed:
        return Sharing("mig", profile, allowed[profile])
    if not allowed:
        errors.say(
            "sharing",
            f"given 'mig-{profile}', but {machine} with {machine.gpu_text} has no MIG; allowed: "
            "none, time-slicing; or ask for a GPU with MIG (A100, H100, H200, B200)",
        )
    else:
        names = ", ".join(f"mig-{name} (max {most})" for name, most in allowed.items())
        errors.add("sharing", f"mig-{profile}", f"{names} on each of its GPUs")
    return NOT_SHARED
