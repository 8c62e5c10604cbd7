"""A team's workloads in a cluster: training jobs, sweeps, federated training, inference."""

from __future__ import annotations

from falaj.stacks.blueprints.in_cluster import InClusterParts
from falaj.stacks.settings.workloads import WorkloadsSettings


def declare(settings: WorkloadsSettings, parts: InClusterParts) -> None:
    """Register the resources of a workloads stack and export how they are reached."""
    components, options = parts.components, parts.options
    for kind, sections in (("TrainingJob", settings.training_jobs),):
        component = getattr(components, kind)
        for name, section in sections.items():
            component(name, parts.args(section, images=True), options)
    services = {
        name: components.InferenceService(name, parts.args(section, images=True), options)
        for name, section in settings.inference_services.items()
    }
    parts.export("inferenceServices", {name: made.url for name, made in services.items()})
    parts.export("trainingJobs", sorted(settings.training_jobs))
