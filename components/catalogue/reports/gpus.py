"""Reports about GPUs: facts and MIG profiles."""

from __future__ import annotations

from collections.abc import Sequence

from falaj.components.catalogue import data_files
from falaj.components.catalogue.gpus import Gpu
from falaj.components.catalogue.reports.report import Report, once
from falaj.components.catalogue.tables import Column


def gpu_facts(gpus: Sequence[Gpu]) -> Report:
    """Memory, speed, links and power of GPUs."""
    rows = tuple(
        {
            "gpu": g.name,
            "architecture": g.architecture,
            "memory_gb": g.memory_gb,
            "memory_bandwidth_gb_s": g.memory_bandwidth_gb_s,
            "bf16_tflops": g.bf16_tflops,
            "fp8_tflops": g.fp8_tflops,
            "int8_tops": g.int8_tops,
            "nvlink_gb_s": g.nvlink_gb_s,
            "power_w": g.power_w,
            "compute_capability": g.compute_capability,
            "bf16_fp32_accumulate_tflops": g.bf16_fp32_accumulate_tflops,
            "fp16_tflops": g.fp16_tflops,
            "fp4_tflops": g.fp4_tflops,
            "measured_bf16_tflops": g.measured_bf16_tflops,
            "measured_fp8_tflops": g.measured_fp8_tflops,
            "note": g.note,
        }
        for g in gpus
    )
    columns = (
        Column("gpu", "GPU"),
        Column("architecture", "generation"),
        Column("memory_gb", "GB", right=True),
        Column("memory_bandwidth_gb_s", "GB/s", right=True),
        Column("bf16_tflops", "bf16 TFLOPS", right=True),
        Column("fp8_tflops", "fp8 TFLOPS", right=True),
        Column("int8_tops", "int8 TOPS", right=True),
        Column("nvlink_gb_s", "NVLink GB/s", right=True),
        Column("power_w", "W", right=True),
        Column("compute_capability", "compute", right=True),
    )
    notes = (
        "Speeds are dense, from datasheets; NVLink is both directions together.",
        *(f"{g.name}: {g.note}" for g in gpus if g.note),
    )
    return Report("GPUs", columns, rows, _sources(gpus), _as_of(), notes)


def mig(gpus: Sequence[Gpu]) -> Report:
    """MIG profiles and how many fit on one GPU."""
    rows = tuple(
        {"gpu": g.name, "profile": profile, "most": most}
        for g in gpus
        for profile, most in g.mig_profiles.items()
    )
    columns = (
        Column("gpu", "GPU"),
        Column("profile", "profile"),
        Column("most", "fit on one GPU", right=True),
    )
    without = [g.name for g in gpus if not g.mig_profiles]
    notes = (f"Without MIG: {', '.join(without)}.",) if without else ()
    return Report("MIG profiles", columns, rows, _sources(gpus), _as_of(), notes)


def _sources(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return once(id_ for g in gpus for id_ in g.sources)


def _as_of() -> str:
    return data_files.load("gpus")["as_of"]
