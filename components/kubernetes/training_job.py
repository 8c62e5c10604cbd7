"""A training job: one GPU, a machine of them, many machines, or none."""

from typing import Any

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.training import checks
from falaj.components.kubernetes.training.arguments import (
    ElasticArgs,
    TopologyArgs,
    TrainingJobArgs,
    TrainingJobSpec,
)
from falaj.components.kubernetes.training.jobs import (
    elastic_job,
    job_set,
    network_policy,
    pod_monitor,
)

__all__ = [
    "ElasticArgs", "TopologyArgs", "TrainingJob", "TrainingJobArgs", "check", "manifests",
]  # fmt: skip


def check(name: str, args: TrainingJobArgs) -> TrainingJobSpec:
    """Check the arguments of a `TrainingJob`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    return checks.check(name, args)


def manifests(spec: TrainingJobSpec) -> list[Manifest]:
    """The objects of a job: the job itself, who may reach its pods, who reads its figures."""
    run = spec.run
    peers = spec.nodes > 1 or spec.elastic is not None
    found = [network_policy(run, peers=peers)]
    found += elastic_job(spec) if spec.elastic is not None else [job_set(spec)]
    if run.telemetry:
        found.append(pod_monitor(run))
    return found


class TrainingJob(pulumi.ComponentResource):
    """Trains on GPUs or CPUs of a cluster, with checkpoints on a file system that all pods share.

    Kueue admits all pods of a job or none. It is asked for by Falaj's own training or a program of
    the team's; evicted pods (spot machines, drains, pre-emption) save a checkpoint and start
    again, faults of machines are tried a few times, faults of the program end the job at once.

    Programs of PyTorch and TensorFlow get the variables by which their pods meet; those of Horovod
    are started by a launcher, once for each process, with neither ssh nor MPI.

    A job can't be changed while it runs: a change replaces it, and what was trained goes on from
    the checkpoint where data and parameters are the same. ``nodes`` of an elastic job is changed
    in place.
    """

    run_folder: pulumi.Output[str]
    """Folder of the run in the claim of checkpoints."""

    def __init__(
        self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("TrainingJob"), name, None, opts)
        options: dict[str, Any] = {}
        if spec.elastic is None:
            options = {"replace_on_changes": ["spec"], "delete_before_replace": True}
        objects = manifests(spec)
        jobs = [each for each in objects if each["kind"] == "JobSet"]
        declare(self, name, [each for each in objects if each["kind"] != "JobSet"])
        declare(self, name, jobs, **options)
        self.run_folder = pulumi.Output.from_input(spec.run.name)
        self.register_outputs({"run_folder": self.run_folder})
