"""What becomes of a model once its gang has trained it: gated, optimised, signed and delivered.

One pod after the gang, whose containers have duties of their own. `optimise` reads run and dataset
with the job's key ring, judges the model, and has no key that signs and no way into the registry.
`publish` has both, and sees neither run nor dataset: only what `optimise` left, which is sealed.
The signing key is laid out after `optimise` has ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from falaj.components.catalogue.clusters import TENANT_LABEL
from falaj.components.kubernetes import _registry_access as registry
from falaj.components.kubernetes._key_ring import KEY_RING, KEYS, volumes
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._peers import resolver_egress
from falaj.components.kubernetes._placed import COMPONENT_LABEL
from falaj.components.kubernetes._validation import options
from falaj.components.kubernetes.training.arguments import (
    CPU_FLAVOR,
    Placement,
    PodSize,
    Publication,
    PublishArgs,
    Run,
)
from falaj.components.kubernetes.training.placement import computing
from falaj.components.kubernetes.training.pods import (
    DATA,
    RUNS,
    SCRATCH,
    publishing_pods,
    template,
    unpacks,
)
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.node_pools import label_value

ROLE: Final = "publish"
"""Of the replicated job, and of its container."""
ENDING: Final = f"-{ROLE}"
"""Of the names of what stands beside the job for it."""
_OPTIMISE: Final = "optimise"
_SIGNING: Final = "signing-"
"""Beginning of the names of what has the ring that signs."""
_SHARED_MIB: Final = 64
#: What each bound of the gate is for: a model has one task.
_TASKS: Final = {
    "least_accuracy": "classifications",
    "most_rmse": "regressions",
    "most_nats": "language models",
}
_GATE: Final = (*_TASKS, "max_accuracy_drop")
_AT: Final = "publish"
_OF_ACCESS: Final = registry.RegistryAccessArgs.__annotations__
"""Whose own check knows what of them may be shown."""


def checked(
    value: object, run: Run, store: str, image: str, errors: ArgumentErrors
) -> Publication:
    """The argument ``publish``.

    Args:
        value: what was given.
        run: the job's.
        store: the `ClusterSecretStore`.
        image: Falaj's for trainings on processors, with its digest.
        errors: gets what is wrong.
    """
    asked = options(_AT, value, PublishArgs, errors)
    access = registry.checked(_AT, asked, run.placed, store, errors)
    own = {key: each for key, each in asked.items() if key not in _OF_ACCESS}
    found = errors.checked_only(own, PublishArgs, at=f"{_AT}.")
    flavor = str(found["flavor"] or run.placement.flavor)
    errors.form(f"{_AT}.flavor", flavor, CPU_FLAVOR)
    gate: dict[str, float] = {key: found[key] for key in _GATE if found[key] is not None}
    of_tasks = [key for key in _TASKS if key in gate]
    if len(of_tasks) > 1:
        purposes = ", ".join(f"{key} is for {_TASKS[key]}" for key in of_tasks)
        errors.say(f"{_AT}.{of_tasks[-1]}", f"{purposes}: a model is one of them")
    scratch: int = found["scratch_gib"]
    resources = computing(found["cpus"], found["memory_gib"], scratch)
    return Publication(
        model=str(found["model"]),
        access=access,
        image=image,
        alias=found["alias"],
        gate=gate,
        accept=str(found["accept"]),
        quantise=str(found["quantise"]),
        flavor=flavor,
        size=PodSize(resources, 0, 1, _SHARED_MIB, scratch),
    )


def _named(run: Run, ending: str) -> str:
    return f"{run.name}{ENDING}{ending}"


def _labels(run: Run) -> dict[str, str]:
    """Of the publishing pod: the gang's rules of the network aren't its own."""
    return {TENANT_LABEL: run.placed.tenant, COMPONENT_LABEL: label_value(_named(run, ""))}


def manifests(run: Run, publication: Publication) -> list[Manifest]:
    """What stands beside the job: its secrets, the registry's authority, whom the pod reaches."""

    def about(ending: str, /, *, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        name = _named(run, ending)
        return metadata(run.placed, _named(run, ""), name, run.namespace, labels=labels)

    access = publication.access
    return [
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": about(""),
            "spec": {
                "podSelector": {"matchLabels": _labels(run)},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [resolver_egress(), registry.egress(access)],
            },
        },
        *registry.secrets(access, about),
    ]


_OPTIMISED: Final = f"{SCRATCH}/optimised"


def pod(run: Run, publication: Publication, job_keys: str) -> dict[str, Any]:
    """The template of the publishing pod.

    Args:
        run: the job's.
        publication: what it does.
        job_keys: name of the Secret with the job's packed key ring.
    """
    flavor = publication.flavor
    own = replace(
        run, image=publication.image, size=publication.size, telemetry=False, env={},
        placement=Placement(flavor, flavor.endswith("-spot"), None, "required", "none"),
    )  # fmt: skip
    made = template(own, _optimise_command(run, publication), (), _labels(run))
    spec = made["spec"]
    [optimise] = spec["containers"]
    optimise["name"] = _OPTIMISE
    for mount in optimise["volumeMounts"]:
        if mount["mountPath"] == RUNS:
            mount["readOnly"] = True
    optimise["volumeMounts"].append({"name": "keys", "mountPath": KEYS})
    publish = {
        **optimise,
        "name": ROLE,
        "command": _publish_command(run, publication),
        "volumeMounts": [
            each for each in optimise["volumeMounts"]
            if each["mountPath"] not in (RUNS, DATA, KEYS)
        ] + [{"name": f"{_SIGNING}keys", "mountPath": KEYS}],
    }  # fmt: skip
    spec["volumes"] += [*volumes(job_keys), *volumes(_named(run, "-keys"), _SIGNING)]
    registry.give(publication.access, _named(run, ""), spec, publish)
    spec["initContainers"] = [
        unpacks(publication.image),
        optimise,
        unpacks(publication.image, "--signs", prefix=_SIGNING),
    ]
    spec["containers"] = [publish]
    return made


def _optimise_command(run: Run, publication: Publication) -> list[str]:
    gate = [
        word
        for name, value in publication.gate.items()
        for word in (f"--{name.replace('_', '-')}", f"{value:g}")
    ]
    return [
        "python", "-m", "falaj.workloads.optimization",
        "--run", f"{RUNS}/{run.job}",
        "--dataset", f"{DATA}/{run.snapshot}",
        "--output", _OPTIMISED,
        "--keyring", KEY_RING,
        "--data-class", run.placed.data_class,
        "--quantise", publication.quantise,
        "--accept", publication.accept,
        *gate,
    ]  # fmt: skip


def _publish_command(run: Run, publication: Publication) -> list[str]:
    return [
        "python", "-m", "falaj.workloads.registry", "deliver",
        "--model", publication.model,
        "--from", _OPTIMISED,
        "--fields", f"{_OPTIMISED}/fields.json",
        "--keyring", KEY_RING,
        *registry.options(publication.access),
        "--alias", publication.alias,
        "--json",
    ]  # fmt: skip


#: How often a publication is tried again after faults, the registry's above all.
_TRIES: Final = 6


def job(run: Run, publication: Publication, job_keys: str) -> dict[str, Any]:
    """The specification of the Job: one pod, tried again without the gang."""
    return {
        "completionMode": "Indexed",
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": _TRIES,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": publishing_pods(),
        "template": pod(run, publication, job_keys),
    }


def failure_rule() -> dict[str, Any]:
    """What a publication that failed means for the set: the gang's work is done, and stays."""
    return {
        "name": "unpublished",
        "action": "FailJobSet",
        "targetReplicatedJobs": [ROLE],
    }
