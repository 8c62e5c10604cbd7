"""An indexed Job whose pods don't need each other to exist: each is replaced alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training.specification import Run
from falaj.components.kubernetes.training.surroundings import queue_labels


def indexed_job(
    run: Run,
    annotations: Mapping[str, str],
    counts: Mapping[str, Any],
    rules: Mapping[str, Any],
    pod: Mapping[str, Any],
) -> Manifest:
    """The Job, in Kueue's queue.

    Args:
        run: what it is for.
        annotations: what Kueue has to know of it.
        counts: fields of the Job that say how many pods, and how many failures of them.
        rules: its pod failure policy.
        pod: template of its pods.
    """
    # It may wait for its quota for hours: an update doesn't wait for its end.
    notes = {**annotations, "pulumi.com/skipAwait": "true"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(
            run.placed,
            run.name,
            run.name,
            run.namespace,
            labels=queue_labels(run),
            annotations=notes,
        ),
        "spec": {
            "completionMode": "Indexed",
            **counts,
            # A pod that is still on its way out has its GPUs and its place in the run.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": rules,
            "template": pod,
        },
    }
