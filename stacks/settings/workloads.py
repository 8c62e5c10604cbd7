"""Settings of a team's workloads in a cluster: training jobs, sweeps, inference services."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from components.kubernetes.inference_service import InferenceServiceArgs
from components.kubernetes.sweep import SweepArgs
from components.kubernetes.training_job import TrainingJobArgs
from stacks.settings.derived import component_section
from stacks.settings.in_cluster import InClusterSettings
from stacks.settings.section import Section

#: A name that leaves room for what controllers append to it.
WorkloadName = Annotated[str, Field(pattern=r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")]

if TYPE_CHECKING:
    InferenceSection = SweepSection = TrainingSection = Section
else:
    InferenceSection = component_section(InferenceServiceArgs, "inferenceServices")
    SweepSection = component_section(SweepArgs, "sweeps")
    TrainingSection = component_section(TrainingJobArgs, "trainingJobs")


class WorkloadsSettings(InClusterSettings):
    """Everything that a ``workloads`` stack may say; its tenant is the team's."""

    blueprint: Literal["workloads"]
    training_jobs: dict[WorkloadName, TrainingSection] = Field(default_factory=dict)
    """Arguments of `TrainingJob`, by name."""
    sweeps: dict[WorkloadName, SweepSection] = Field(default_factory=dict)
    """Arguments of `Sweep`, by name."""
    inference_services: dict[WorkloadName, InferenceSection] = Field(default_factory=dict)
    """Arguments of `InferenceService`, by name."""
