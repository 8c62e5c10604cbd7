"""GPUs: memory, speed, links, power and MIG profiles, as the vendors state them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from falaj.components.catalogue import sources
from falaj.components.catalogue.sources import DemandError
from falaj.components.nearest import nearest


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU model in one variant. None means that no source was read: unknown, not zero.

    Speeds are dense (without sparsity), as the datasheet states them: measured matrix products
    reach 78 to 87 % of them at best.
    """

    name: str
    """Model, variant and memory: ``H100-NVL-94GB``."""
    vendor: str
    architecture: str | None
    """Generation: ``Ampere``, ``Hopper`` …"""
    memory_gb: int | None
    memory_bandwidth_gb_s: float | None
    bf16_tflops: float | None
    bf16_fp32_accumulate_tflops: float | None
    """bf16 with 32-bit accumulation, where it is slower than the headline."""
    fp16_tflops: float | None
    fp8_tflops: float | None
    fp4_tflops: float | None
    int8_tops: float | None
    nvlink_gb_s: float | None
    """Both directions together, for one GPU; 0 where it has no NVLink."""
    power_w: int | None
    compute_capability: str | None
    measured_bf16_tflops: float | None
    measured_fp8_tflops: float | None
    mig_profiles: Mapping[str, int] = field(hash=False)
    """How many instances of each MIG profile fit on one GPU; empty where it has no MIG."""
    pci_device_ids: tuple[str, ...]
    note: str | None
    sources: tuple[str, ...]

    @property
    def model(self) -> str:
        """Model without variant and memory: ``H100``."""
        return self.name.split("-", maxsplit=1)[0]

    def instances(self, profile: str) -> int:
        """How many instances of a MIG profile such as ``1g.18gb`` fit on one GPU.

        Source: NVIDIA mig-parted's default configuration and the MIG user guide.

        Raises:
            DemandError: the GPU has no MIG or no such profile; the message names the allowed ones.
        """
        if not self.mig_profiles:
            raise DemandError(
                f"{self.name} has no MIG, given the profile {profile!r}; "
                "ask for a whole GPU, or share it by time-slicing"
            )
        count = self.mig_profiles.get(profile.strip().lower())
        if count is None:
            allowed = ", ".join(f"{name} (max {most})" for name, most in self.mig_profiles.items())
            raise DemandError(
                f"{self.name} has no MIG profile {profile!r}; allowed on each GPU: {allowed}"
            )
        return count


def _load() -> Mapping[str, Gpu]:
    found: dict[str, Gpu] = {}
    for name, row in sources.load("gpus")["gpus"].items():

        def number(key: str, row: Mapping[str, object] = row) -> float | None:
            value = row[key]
            return None if value is None else float(str(value))

        found[name] = Gpu(
            name=name,
            vendor=row["vendor"],
            architecture=row["architecture"],
            memory_gb=row["memory_gb"],
            memory_bandwidth_gb_s=number("memory_bw_gbs"),
            bf16_tflops=number("bf16_dense_tflops"),
            bf16_fp32_accumulate_tflops=number("bf16_dense_fp32acc_tflops"),
            fp16_tflops=number("fp16_dense_tflops"),
            fp8_tflops=number("fp8_dense_tflops"),
            fp4_tflops=number("fp4_dense_tflops"),
            int8_tops=number("int8_dense_tops"),
            nvlink_gb_s=number("nvlink_gbs_bidirectional"),
            power_w=row["power_w"],
            compute_capability=row["compute_capability"],
            measured_bf16_tflops=number("measured_bf16_mamf_tflops"),
            measured_fp8_tflops=number("measured_fp8_mamf_tflops"),
            mig_profiles=MappingProxyType(row["mig"]),
            pci_device_ids=tuple(row["pci_device_ids"]),
            note=row["note"],
            sources=tuple(row["sources"]),
        )
    return MappingProxyType(found)


GPUS = _load()
"""Every GPU that the catalogue knows, by its full name; not all are sold in the country."""

_VENDORS = {"NVIDIA", "AMD", "INSTINCT", "TESLA"}
_MEMORY = re.compile(r"^(\d+)(?:G|GB|GIB)?$")


def _tokens(name: str) -> list[str]:
    return [token for token in re.split(r"[\s_/-]+", name.strip().upper()) if token]


def _matches(asked: list[str], gpu: Gpu) -> bool:
    model, *variants = _tokens(gpu.name)
    if asked[0] != model:
        return False
    for token in asked[1:]:
        memory = _MEMORY.match(token)
        if memory:
            if str(gpu.memory_gb) != memory.group(1):
                return False
        # "SXM" stands for every SXM generation; the last variant is the memory.
        elif not any(re.fullmatch(re.escape(token) + r"\d?", variant) for variant in variants):
            return False
    return True


def find(name: str) -> tuple[Gpu, ...]:
    """GPUs that a name means: ``H100`` every variant, ``H100-NVL`` or ``A100-40GB`` only that.

    Upper and lower case, spaces, ``_`` and the vendor's name make no difference.

    Raises:
        DemandError: when no GPU of the catalogue has that name.
    """
    asked = [token for token in _tokens(name) if token not in _VENDORS]
    found = tuple(gpu for gpu in GPUS.values() if asked and _matches(asked, gpu))
    if found:
        return found
    models = list(dict.fromkeys(gpu.model for gpu in GPUS.values()))
    same_model = [gpu.name for gpu in GPUS.values() if asked and gpu.model == asked[0]]
    if same_model:
        allowed = f"that model exists as {', '.join(same_model)}"
    else:
        close = nearest(asked[0] if asked else "", models)
        meant = f"did you mean {close[0]}? " if close else ""
        allowed = f"{meant}known models: {', '.join(models)}"
    raise DemandError(f"no GPU is called {name!r}; {allowed}")
