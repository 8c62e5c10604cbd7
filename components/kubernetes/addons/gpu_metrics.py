"""What the platform's dcgm-exporter reports of each GPU: the only names that queries may use.

The exporter counts errors (XIDs) and slowed clocks only when they are asked for: neither its own
list nor the GPU operator's has them. So the platform ships a list of its own, which is the
operator's and those two.

The operator's: https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/dcp-metrics-included.csv
How it is given: ``dcgmExporter.config`` of
https://github.com/NVIDIA/gpu-operator/blob/v26.7.0/deployments/gpu-operator/values.yaml
Who exports without the operator, on nodes that AKS manages:
https://learn.microsoft.com/azure/aks/aks-managed-gpu-nodes
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

WINDOW_MINUTES: Final = 5
"""Over which the exporter counts errors and slowed clocks, each time that it is read."""
WINDOW_VARIABLES: Final = (
    "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE",
    "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
)
"""Variables of the exporter that set the window, in milliseconds (pkg/cmd/app.go)."""
NODE: Final = "node"
"""Label with the node's name, given when Prometheus reads the exporter. The exporter's own is
``Hostname`` until 4.8.2 and ``hostname`` from then on (pull request 655)."""


@dataclass(frozen=True)
class GpuMetric:
    """One metric, as a line of the exporter's list."""

    name: str
    kind: Literal["gauge", "counter"]
    """What it is to Prometheus: a counter only grows, so that `increase` and `rate` fit it."""
    meaning: str
    """Without a comma: the exporter takes three fields a line."""


def _gauge(name: str, meaning: str) -> GpuMetric:
    return GpuMetric(name, "gauge", meaning)


def _counter(name: str, meaning: str) -> GpuMetric:
    return GpuMetric(name, "counter", meaning)


METRICS: Final = (
    _gauge("DCGM_FI_DEV_SM_CLOCK", "Clock of the multiprocessors (MHz)"),
    _gauge("DCGM_FI_DEV_MEM_CLOCK", "Clock of the memory (MHz)"),
    _gauge("DCGM_FI_DEV_MEMORY_TEMP", "Temperature of the memory (C)"),
    _gauge("DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU (C)"),
    _gauge("DCGM_FI_DEV_POWER_USAGE", "Power draw (W)"),
    _counter("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Energy since boot (mJ)"),
    _counter("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Retries on PCIe"),
    _gauge("DCGM_FI_DEV_GPU_UTIL", "Time with any kernel running (%); void under MIG"),
    _gauge("DCGM_FI_DEV_MEM_COPY_UTIL", "Use of the memory's interface (%)"),
    _gauge("DCGM_FI_DEV_ENC_UTIL", "Use of the encoder (%)"),
    _gauge("DCGM_FI_DEV_DEC_UTIL", "Use of the decoder (%)"),
    _gauge("DCGM_FI_DEV_XID_ERRORS", "Number of the last XID error"),
    _gauge("DCGM_FI_DEV_FB_FREE", "Memory free (MiB)"),
    _gauge("DCGM_FI_DEV_FB_USED", "Memory in use (MiB)"),
    _gauge("DCGM_FI_DEV_FB_RESERVED", "Memory reserved (MiB)"),
    _counter("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Transfers over all lanes of NVLink"),
    _counter("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Rows remapped for uncorrectable errors"),
    _counter("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Rows remapped for correctable errors"),
    _gauge("DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether a remapping of rows failed"),
    _gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Share of time that the graphics engine is active"),
    _gauge("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Share of cycles that the tensor cores are active"),
    _gauge("DCGM_FI_PROF_DRAM_ACTIVE", "Share of cycles that the memory's interface is active"),
    _gauge("DCGM_FI_PROF_PCIE_TX_BYTES", "Sent over PCIe (bytes a second)"),
    _gauge("DCGM_FI_PROF_PCIE_RX_BYTES", "Received over PCIe (bytes a second)"),
    # Within the window, not since the start: they fall again, which makes them gauges although
    # the comments of the exporter's own list say counter (internal/pkg/collector/expcollector.go).
    _gauge("DCGM_EXP_XID_ERRORS_COUNT", "XID errors within the window by label xid"),
    _gauge("DCGM_EXP_CLOCK_EVENTS_COUNT", "Slowed readings within the window by clock_event"),
)
SLOWED: Final = ("hw_power_brake", "hw_slowdown", "hw_thermal", "sw_thermal")
"""Values of ``clock_event`` for heat and failing power (the exporter's clock_events_collector.go).
``power_cap`` is a busy GPU at the power that it may draw, and the others are wanted or idle."""


def listing() -> str:
    """The list as the exporter reads it: name, Prometheus's type, help."""
    return "".join(f"{each.name}, {each.kind}, {each.meaning}\n" for each in METRICS)
