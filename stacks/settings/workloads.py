"""Settings of a team's workloads in a cluster: training jobs, sweeps, inference services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from falaj.components.kubernetes.inference_service import InferenceServiceArgs
from falaj.components.kubernetes.sweep import SweepArgs
from falaj.components.kubernetes.training_job import TrainingJobArgs
from falaj.components.specification.limits import WORKLOAD
from falaj.stacks.settings.derived import component_section
from falaj.stacks.settings.in_cluster import InClusterSettings
from falaj.stacks.settings.section import Section

WorkloadName = Annotated[str, WORKLOAD]

if TYPE_CHECKING:
    InferenceSection = SweepSection = TrainingSection = Section
else:
    InferenceSection = component_section(InferenceServiceArgs, "inferenceServices")
    SweepSection = component_section(SweepArgs, "sweeps")
    TrainingSection = component_section(TrainingJobArgs, "trainingJobs")


class WorkloadsSettings(InClusterSettings):
    """Everything that a ``workloads`` stack may say; its tenant is the team's."""

    blueprint: Literal["workloads"]
    """What the stack makes: here a team's jobs and services in a cluster."""
    training_jobs: dict[WorkloadName, TrainingSection] = Field(default_factory=dict)
    """Arguments of `TrainingJob`, by name."""
    sweeps: dict[WorkloadName, SweepSection] = Field(default_factory=dict)
    """Arguments of `Sweep`, by name."""
    inference_services: dict[WorkloadName, InferenceSection] = Field(default_factory=dict)
    """Arguments of `InferenceService`, by name."""
