"""A job that goes on with fewer or more pods: an indexed Job that Kueue lets grow and shrink.

Of the kinds that Kueue can resize, `batch/v1` Job is the one that fits; it can't ask for topology
then. The pod of index 0 hosts the rendezvous: without it the others end and start anew.
"""

from __future__ import annotations

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training import environment
from falaj.components.kubernetes.training.failures import elastic_pods
from falaj.components.kubernetes.training.gang import command
from falaj.components.kubernetes.training.indexed_job import indexed_job
from falaj.components.kubernetes.training.pods import template
from falaj.components.kubernetes.training.specification import TrainingJobSpec
from falaj.components.kubernetes.training.surroundings import selector


def elastic_job(spec: TrainingJobSpec) -> list[Manifest]:
    """The Job, and the headless Service that gives its pods names."""
    run, elastic = spec.run, spec.elastic
    most = elastic.most if elastic else spec.nodes
    pod = template(run, command(spec), environment.torch(spec, f"{run.name}-0.{run.name}"), {})
    pod["spec"]["subdomain"] = run.name
    counts = {
        "parallelism": spec.nodes,
        "completions": spec.nodes,
        "backoffLimit": spec.max_restarts * most,
    }
    growing = {"kueue.x-k8s.io/elastic-job": "true"}
    job = indexed_job(run, growing, counts, elastic_pods(), pod)
    if spec.ttl_seconds is not None:
        job = {**job, "spec": {**job["spec"], "ttlSecondsAfterFinished": spec.ttl_seconds}}
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(run.placed, run.name, run.name, run.namespace),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": selector(run),
            "ports": [{"name": "rendezvous", "port": environment.RENDEZVOUS_PORT}],
        },
    }
    return [service, job]
