"""Names of GPUs, and what fits on one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue import GPUS, DemandError, NotSoldError, place
from falaj.components.catalogue.gpus import find


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("H300", "did you mean H200"),
        ("", "known models"),
        ("  ", "known models"),
        ("NVIDIA", "known models"),
        ("H100-PCIX", "exists as H100-SXM5-80GB, H100-PCIe-80GB, H100-NVL-94GB"),
        ("A100-160GB", "exists as A100-SXM4-40GB"),
        ("A1", "known models"),
        ("trn1", "known models"),
    ],
)
def test_unknown_names_are_refused_with_the_known_ones(name: str, reason: str) -> None:
    with pytest.raises(DemandError, match=reason):
        find(name)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("H100", {"H100-SXM5-80GB", "H100-PCIe-80GB", "H100-NVL-94GB"}),
        ("h100 nvl", {"H100-NVL-94GB"}),
        ("NVIDIA H100_SXM", {"H100-SXM5-80GB"}),
        ("H100-SXM5-80GB", {"H100-SXM5-80GB"}),
        ("A100", {"A100-SXM4-40GB", "A100-SXM4-80GB", "A100-PCIe-80GB"}),
        ("A100-80", {"A100-SXM4-80GB", "A100-PCIe-80GB"}),
        ("a10", {"A10-24GB"}),
        ("A10G", {"A10G-24GB"}),
        ("l4", {"L4-24GB"}),
        ("L40S", {"L40S-48GB"}),
        ("AMD Instinct MI300X", {"MI300X-192GB"}),
        ("H200", {"H200-SXM-141GB", "H200-NVL-141GB"}),
        ("V100-32GB", {"V100-SXM2-32GB"}),
    ],
)
def test_names(name: str, found: set[str]) -> None:
    assert {gpu.name for gpu in find(name)} == found


@pytest.mark.parametrize("name", sorted(GPUS))
def test_every_full_name_means_itself(name: str) -> None:
    assert [gpu.name for gpu in find(name)] == [name]
    assert [gpu.name for gpu in find(name.lower().replace("-", " "))] == [name]


@given(st.text())
def test_any_text_is_found_or_refused(name: str) -> None:
    try:
        assert find(name)
    except DemandError as error:
        assert repr(name) in str(error)


def test_variants_that_are_not_sold() -> None:
    uaenorth = place("azure", "uaenorth")
    assert [m.name for m in uaenorth.offers(gpu="H100-NVL")] == [
        "Standard_NC40ads_H100_v5",
        "Standard_NC80adis_H100_v5",
    ]
    with pytest.raises(NotSoldError, match="8 x H100"):
        uaenorth.resolve(gpu="H100-NVL", count=8)


def test_profiles_that_fit() -> None:
    h200 = GPUS["H200-SXM-141GB"]
    assert h200.instances("1g.18gb") == 7
    assert h200.instances("1G.18GB ") == 7
    machine = place("aws", "me-central-1").machine("p5en.48xlarge")
    assert machine.mig_profiles["3g.71gb"] == 2


@pytest.mark.parametrize("profile", ["1g.10gb", "8g.141gb", "", "mig-1g.18gb"])
def test_profiles_that_do_not_exist(profile: str) -> None:
    with pytest.raises(DemandError, match=r"allowed on each GPU: 1g\.18gb \(max 7\)"):
        GPUS["H200-SXM-141GB"].instances(profile)


@pytest.mark.parametrize("name", ["L40S-48GB", "A10-24GB", "MI300X-192GB"])
def test_gpus_without_mig(name: str) -> None:
    with pytest.raises(DemandError, match="has no MIG"):
        GPUS[name].instances("1g.5gb")


@pytest.mark.parametrize("name", [n for n, gpu in GPUS.items() if gpu.mig_profiles])
def test_profiles_never_take_more_than_the_gpu_has(name: str) -> None:
    gpu = GPUS[name]
    assert gpu.memory_gb is not None
    for profile, most in gpu.mig_profiles.items():
        slices, memory = profile.removesuffix("+me").removesuffix("gb").split("g.")
        assert int(slices) * most <= 7
        # Names round memory: 8 slices of it share what the GPU has.
        assert int(memory) * most <= gpu.memory_gb * 1.03


def test_a_fraction_of_a_gpu_has_no_mig() -> None:
    fraction = place("azure", "uaenorth").machine("Standard_NV6ads_A10_v5")
    assert dict(fraction.mig_profiles) == {}
