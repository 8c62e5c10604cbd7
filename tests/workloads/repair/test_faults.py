"""What GPUs report, and what becomes of it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.kubernetes.addons.gpu_metrics import METRICS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.repair.faults import (
    ROW_REMAP_FAILURE,
    XIDS,
    Fault,
    finding,
    read_faults,
)
from tests.workloads.repair.parts import DOMAIN, condition, node, settings

SETTINGS = settings()
KIND = f"{DOMAIN}/GpuFault"
OFF_THE_BUS = Fault("3", "Xid79", "reboot")
MEMORY = Fault("1", "Xid95", "reset")
#: As dcgm-exporter writes it (its README, and internal/pkg/rendermetrics).
ANSWER = """# HELP DCGM_FI_DEV_GPU_TEMP Temperature of the GPU (C)
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-0",modelName="NVIDIA H200",Hostname="gpu-1"} 41
# HELP DCGM_FI_DEV_ROW_REMAP_FAILURE Whether a remapping of rows failed
# TYPE DCGM_FI_DEV_ROW_REMAP_FAILURE gauge
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="0",UUID="GPU-0"} 0
DCGM_FI_DEV_ROW_REMAP_FAILURE{gpu="2",UUID="GPU-2"} 1
# HELP DCGM_EXP_XID_ERRORS_COUNT XID errors within the window by label xid
# TYPE DCGM_EXP_XID_ERRORS_COUNT gauge
DCGM_EXP_XID_ERRORS_COUNT{gpu="3",UUID="GPU-3",window_size_in_ms="300000",xid="79"} 1
DCGM_EXP_XID_ERRORS_COUNT{gpu="1",UUID="GPU-1",window_size_in_ms="300000",xid="31"} 4
DCGM_EXP_XID_ERRORS_COUNT{gpu="1",UUID="GPU-1",window_size_in_ms="300000",xid="95"} 0
"""


def test_an_exporters_answer() -> None:
    assert read_faults(ANSWER, SETTINGS) == (
        Fault("2", "RowRemapFailure", "replacement"), OFF_THE_BUS,
    )  # fmt: skip
    assert read_faults('DCGM_FI_DEV_GPU_TEMP{gpu="0"} 41\n', SETTINGS) == ()


@pytest.mark.parametrize("text", ["", "# HELP DCGM_FI_DEV_GPU_TEMP\n", "<html>", "up 1\n"])
def test_an_answer_without_a_reading_is_not_health(text: str) -> None:
    """As of an exporter that has just started, or of something else at its address."""
    with pytest.raises(WorkloadError, match="no reading of a GPU"):
        read_faults(text, SETTINGS)


def test_the_platforms_exporter_reports_it() -> None:
    assert {XIDS, ROW_REMAP_FAILURE} <= {each.name for each in METRICS}


@given(st.text(max_size=300) | st.just(ANSWER).flatmap(
    lambda text: st.integers(0, len(text)).map(lambda end: text[:end])))  # fmt: skip
def test_whatever_answers_is_read_or_refused(text: str) -> None:
    try:
        read_faults(text, SETTINGS)
    except WorkloadError as error:
        assert "exporter's answer" in str(error)


def sick(boot: str = "boot-1", message: str = "Xid79 on GPU 3: needs reboot", **more: Any) -> Any:
    notes = {f"{DOMAIN}/fault-boot": "boot-1", **more}
    return node("gpu-1", condition(KIND, "True", 50, message=message), annotations=notes,
                boot=boot)  # fmt: skip


def after(before: Any, *faults: Fault) -> tuple[str, str, str | None] | None:
    found = finding(before, faults, SETTINGS, 100)
    if found is None or found.condition is None:
        return None
    return found.condition["status"], found.condition["reason"], found.boot


def test_a_fault_is_noted_with_the_boot_that_it_was_seen_in() -> None:
    found = finding(node(), (MEMORY, OFF_THE_BUS), SETTINGS, 100)
    assert found is not None
    assert found.condition is not None
    assert found.boot == "boot-1"
    assert found.condition["message"] == "Xid79 on GPU 3; Xid95 on GPU 1: needs reboot"
    assert found.condition["lastTransitionTime"] == "1970-01-01T00:01:40Z"


def test_a_node_whose_gpus_report_nothing_says_so_once() -> None:
    assert after(node()) == ("False", "NoFault", None)
    assert after(node("gpu-1", condition(KIND, "False"))) is None


def test_a_fault_stays_when_the_exporter_has_forgotten_it() -> None:
    assert after(sick()) is None
    assert after(sick(), OFF_THE_BUS) is None


def test_a_further_fault_is_added() -> None:
    found = finding(sick(), (MEMORY,), SETTINGS, 100)
    assert found is not None
    assert found.condition is not None
    assert "Xid79 on GPU 3; Xid95 on GPU 1" in found.condition["message"]
    assert found.condition["lastTransitionTime"] == "1970-01-01T00:00:50Z"
    # What the first one needs isn't less than before.
    assert found.condition["message"].endswith("needs reboot")


def test_a_reboot_ends_it_unless_it_is_there_again() -> None:
    assert after(sick("boot-2")) == ("False", "Rebooted", None)
    assert after(sick("boot-2"), MEMORY) == ("True", "Xid95", "boot-2")


def test_a_person_ends_it_when_the_exporter_has_forgotten_it() -> None:
    cleared = {f"{DOMAIN}/cleared": "nvidia-smi -r, by ali"}
    assert after(sick(**cleared), OFF_THE_BUS) is None
    assert after(sick(**cleared)) == ("False", "ClearedByHand", None)


def test_a_persons_word_is_not_good_for_the_next_fault() -> None:
    early = node("gpu-1", condition(KIND, "False"), annotations={f"{DOMAIN}/cleared": "done"})
    found = finding(early, (), SETTINGS, 100)
    assert found is not None
    assert found.condition is None
    assert found.notes(SETTINGS) == {f"{DOMAIN}/fault-boot": None, f"{DOMAIN}/cleared": None}
    late = finding(sick(**{f"{DOMAIN}/cleared": "done"}), (MEMORY,), SETTINGS, 100)
    assert late is not None
    assert late.notes(SETTINGS)[f"{DOMAIN}/cleared"] is None


@pytest.mark.parametrize("boot", ["", "boot-1"])
def test_without_another_boot_nothing_is_taken_for_a_reboot(boot: str) -> None:
    before = sick("boot-1")
    before["metadata"]["annotations"][f"{DOMAIN}/fault-boot"] = boot
    assert after(before) is None
