"""A pipeline: a training that is started again and again, by the clock, new data, or by hand.

What a run is stands in the cluster as an object of its own kind: a JobSet that no controller runs,
the template (`TEMPLATE_LABEL`, ``managedBy``). Its queue isn't there, so that Kueue never gives it
quota. A starter, the pod of a CronJob, copies the template under the next number. Whoever may make
JobSets may have any image run by any account of the namespace, and RBAC knows neither. So a policy
of the cluster (`falaj.components.kubernetes.admission.pipelines`, of `Residency`) holds the
starter's account to its template: the API server compares both as it stores them, with its and the
controllers' own defaults.

Two starters never make the same run: its name is its number, and the second one is refused.

A run goes with its pipeline: the starter's account owns it. No change replaces that, as one does
the template. Pulumi deletes in the foreground, so that the account is there until the run's pods
are gone, and what they need goes after it.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Annotated, Any, Final, NotRequired, TypedDict

import pulumi

from falaj.components.catalogue.clusters import SERVING_ENDING, USUAL_TIME_ZONE
from falaj.components.catalogue.pipelines import (
    ACCOUNT_ENDING,
    LABEL,
    QUEUE_LABEL,
    QUEUE_NOTE,
    REQUESTS_ENDING,
    START_RIGHT,
    TEMPLATE_LABEL,
    WATCH_ENDING,
)
from falaj.components.kubernetes._objects import Manifest, declare, metadata, token
from falaj.components.kubernetes._peers import api_server_egress, resolver_egress
from falaj.components.kubernetes._placed import COMPONENT_LABEL, TENANT_LABEL
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, USER, unprivileged, unprivileged_pod
from falaj.components.kubernetes._quantities import with_canonical_amounts
from falaj.components.kubernetes._rights import account, role, rule
from falaj.components.kubernetes._validation import CRON, TIME_ZONE, options, private_ranges
from falaj.components.kubernetes.bill_of_materials import resolve_one
from falaj.components.kubernetes.gpu_queues.queues import BURST_QUEUE
from falaj.components.kubernetes.training.arguments import (
    GangArgs,
    Placement,
    Run,
    TrainingJobSpec,
)
from falaj.components.kubernetes.training.jobs import queue_labels
from falaj.components.kubernetes.training.placement import is_gpu_flavor, pod_placement
from falaj.components.kubernetes.training.pods import DATA, publishing_pods
from falaj.components.kubernetes.training_job import checked_flavor, checked_job
from falaj.components.kubernetes.training_job import manifests as job_manifests
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import PIPELINE, SERVICE, Between
from falaj.components.specification.node_pools import PREFIX, label_value

__all__ = ["NewDataArgs", "OnDriftArgs", "Pipeline", "PipelineArgs", "check", "manifests"]

_OF_A_RUN: Final = re.compile(r"-[0-9]+$")
_MANAGER: Final = f"{PREFIX}pipeline-template"
"""Names in ``managedBy`` who runs the template: nobody does."""
_DRIFT: Final = REQUESTS_ENDING.removeprefix(ACCOUNT_ENDING)
_NO_QUEUE: Final = "pipeline-templates"
"""A queue that isn't there: Kueue gives nothing to what is in it."""
#: A starter that can't begin within so many seconds of its time is left out; the next one comes.
_LATE_SECONDS: Final = 600
#: Starters do what takes a second, but wait for their quota as every job of the namespace does.
_STARTER_SECONDS: Final = 1800


class NewDataArgs(TypedDict):
    """How often is looked for a new snapshot."""

    every_minutes: NotRequired[Annotated[int, Between(5, 30), Default(15)]]
    """Minutes between two looks."""


class OnDriftArgs(TypedDict):
    """Who may ask for a run as something drifts, and how often is looked whether anybody does."""

    service: Annotated[str, SERVICE]
    """Name of the tenant's `InferenceService` whose ``watch`` asks."""
    every_minutes: NotRequired[Annotated[int, Between(5, 30), Default(5)]]
    """Minutes between two looks."""


@described
class PipelineArgs(GangArgs):
    """Arguments of `Pipeline`: those of the training that each run is, and when there is one.

    ``dataset`` may end in ``*``: each run then trains on the newest snapshot whose folder's name
    begins so.
    """

    schedule: NotRequired[str]
    """When a run is started, as a cron expression: ``0 3 * * *`` is daily at three. Default: not
    by the clock."""
    timezone: NotRequired[Annotated[str, Default(USUAL_TIME_ZONE)]]
    """Of ``schedule``, by its name in the IANA's list."""
    new_data: NotRequired[NewDataArgs]
    """Start a run when there is a snapshot that the last run didn't have; needs a ``dataset`` that
    ends in ``*``. Default: new data alone start nothing."""
    on_drift: NotRequired[OnDriftArgs]
    """Start a run when the ``watch`` of a service asks for one, and there are data that the last
    run didn't have. Default: drift starts nothing."""
    on_up: NotRequired[Annotated[bool, Default(value=True)]]
    """Whether ``falaj up`` starts a run where it makes the pipeline, or changes it."""
    keep_days: NotRequired[Annotated[int, Between(1, 365), Default(14)]]
    """Days after which a run that ended is removed; its folder and its model stay."""
    control_plane_cidrs: list[str]
    """Private ranges that the API server is in, as pods see it: those of the platform's
    ``installation.controlPlaneCidrs``. There alone the starter gets."""
    starter_flavor: NotRequired[str]
    """Which nodes, without GPUs, the starter is on. Default: those of ``publish``, else the
    training's; needed where these have GPUs."""


_OWN: Final = tuple(PipelineArgs.__annotations__.keys() - GangArgs.__annotations__.keys())


@dataclass(frozen=True, kw_only=True)
class PipelineSpec:
    """The arguments of `Pipeline`, checked."""

    job: TrainingJobSpec
    schedule: str
    """Empty: not by the clock."""
    timezone: str
    every_minutes: int
    """0: new data start nothing."""
    drift_of: str
    """The service whose watch may ask; empty: nobody may."""
    drift_minutes: int
    on_up: bool
    control_plane: tuple[str, ...]
    flavor: str
    """Of the starter's nodes."""
    image: str
    """The starter's."""

    @property
    def run(self) -> Run:
        """What every run is."""
        return self.job.run

    @property
    def starter(self) -> str:
        """Name of the starter's account, and of what is around it."""
        return f"{self.run.name}{ACCOUNT_ENDING}"

    @property
    def requests(self) -> str:
        """Name of the ConfigMap in which a run is asked for."""
        return f"{self.run.name}{REQUESTS_ENDING}"


def check(name: str, args: PipelineArgs) -> PipelineSpec:
    """Check the arguments of a `Pipeline`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Pipeline {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    checked = errors.checked(given, PipelineArgs)
    if not PIPELINE.allows(name) or name.endswith(ACCOUNT_ENDING) or _OF_A_RUN.search(name):
        errors.add(
            "name", name,
            f"{PIPELINE.rule}, not ending in {ACCOUNT_ENDING}, nor in '-' and a number, as "
            "names of runs do",
        )  # fmt: skip
    pattern = str(given.get("dataset", ""))
    training = {key: value for key, value in given.items() if key not in _OWN}
    if pattern.endswith("*"):
        # The form of any snapshot that it may stand for.
        training["dataset"] = f"{pattern[:-1]}x"
    job = checked_job(name, training, checked, errors)
    if given.get("publish") is None and not given.get("program"):
        errors.say("publish", "missing: a run whose model goes nowhere is of no use to anybody")
    if given.get("queue") == BURST_QUEUE:
        errors.say("queue", f"can't be {BURST_QUEUE!r}: the data are in this cluster")
    schedule = str(given.get("schedule", ""))
    if "schedule" in given and not CRON.fullmatch(schedule):
        errors.add("schedule", given["schedule"], "five fields, as 0 3 * * *")
    zone = str(checked["timezone"])
    if not TIME_ZONE.match(zone):
        errors.add("timezone", zone, "a time zone such as Asia/Dubai")
    if "timezone" in given and not schedule:
        errors.say("timezone", "is of schedule; leave it out, or give one")
    minutes = _minutes(given, pattern, errors)
    drift_of, drift_minutes = _on_drift(given, errors)
    ranges = private_ranges("control_plane_cidrs", given.get("control_plane_cidrs", ()), errors)
    flavor = _flavor(given, job, errors)
    image = ""
    if job is not None:
        image = resolve_one(job.run.placed, INFERENCE_IMAGE, given.get("images"), errors)
    errors.raise_if_any()
    if job is None:
        raise AssertionError("what can't be used was refused")
    run = replace(job.run, repeated=True, dataset=pattern)
    job = replace(job, run=run, ttl_seconds=checked["keep_days"] * 24 * 3600)
    return PipelineSpec(
        job=job,
        schedule=schedule,
        timezone=zone,
        every_minutes=minutes,
        drift_of=drift_of,
        drift_minutes=drift_minutes,
        on_up=checked["on_up"],
        control_plane=ranges,
        flavor=flavor,
        image=image,
    )


def _minutes(given: Mapping[str, Any], pattern: str, errors: ArgumentErrors) -> int:
    if given.get("new_data") is None:
        return 0
    asked = options("new_data", given["new_data"], NewDataArgs, errors)
    if not pattern.endswith("*"):
        errors.add(
            "dataset", pattern, "the beginning of snapshots' names, and '*', as credit-*",
            "new_data looks for another snapshot than that of the last run",
        )  # fmt: skip
    return errors.checked_only(asked, NewDataArgs, at="new_data.")["every_minutes"]


def _on_drift(given: Mapping[str, Any], errors: ArgumentErrors) -> tuple[str, int]:
    if given.get("on_drift") is None:
        return "", 0
    asked = options("on_drift", given["on_drift"], OnDriftArgs, errors)
    found = errors.checked_only(asked, OnDriftArgs, at="on_drift.")
    return found["service"] or "", found["every_minutes"]


def _flavor(given: Mapping[str, Any], job: TrainingJobSpec | None, errors: ArgumentErrors) -> str:
    if "starter_flavor" in given:
        flavor = checked_flavor({"flavor": given["starter_flavor"]}, errors)
    elif job is not None and job.publication is not None:
        flavor = job.publication.flavor
    else:
        flavor = job.run.placement.flavor if job is not None else ""
    if is_gpu_flavor(flavor):
        errors.add(
            "starter_flavor", flavor, "nodes without GPUs, such as cpu-x86-64",
            "what starts runs needs none",
        )  # fmt: skip
    return flavor


def manifests(spec: PipelineSpec) -> list[Manifest]:
    """The template, what stands beside its runs, and the starter with its account and times."""
    made = job_manifests(spec.job)
    [job] = [each for each in made if each["kind"] == "JobSet"]
    beside = [each for each in made if each["kind"] != "JobSet"]
    template = _template(spec, job)
    return [
        *beside, template, *_account(spec), _network_policy(spec), _state(spec), *_asked(spec),
        *_starters(spec, template),
    ]  # fmt: skip


def _template(spec: PipelineSpec, job: Manifest) -> Manifest:
    """The JobSet of a job, as one that nobody runs."""
    about = job["metadata"]
    labels = {**about["labels"], LABEL: spec.run.name, TEMPLATE_LABEL: "true"}
    return {
        **job,
        "metadata": {
            **about,
            "labels": {**labels, QUEUE_LABEL: _NO_QUEUE},
            "annotations": {**about["annotations"], QUEUE_NOTE: spec.run.queue},
        },
        # Webhooks write amounts anew in a run, and in a template where it is made, but not where
        # it is changed: in another form than theirs no run would be like a changed template.
        "spec": with_canonical_amounts({**job["spec"], "managedBy": _MANAGER}),
    }


def _about(spec: PipelineSpec, ending: str = "", **parts: Any) -> dict[str, Any]:
    run = spec.run
    return metadata(run.placed, spec.starter, f"{spec.starter}{ending}", run.namespace, **parts)


def _account(spec: PipelineSpec) -> list[Manifest]:
    """The account, and all that it may do: the policy says which JobSets it makes."""
    about = _about(spec)
    rules = [
        rule("jobset.x-k8s.io", "jobsets", "create", "list"),
        rule("jobset.x-k8s.io", "jobsets", "get", names=(spec.run.name,)),
        rule(*START_RIGHT, names=(spec.run.name,)),
        rule("", "configmaps", "get", "patch", names=(spec.starter,)),
        # Its runs have the account wait for them (OwnerReferencesPermissionEnforcement).
        rule("", "serviceaccounts/finalizers", "update", names=(spec.starter,)),
    ]
    if spec.drift_of:
        rules.append(rule("", "configmaps", "get", names=(spec.requests,)))
    starter = {"kind": "ServiceAccount", "name": spec.starter, "namespace": spec.run.namespace}
    return [account(about), *role(about, rules, [starter])]


def _asked(spec: PipelineSpec) -> list[Manifest]:
    """Where who watches a service's drift asks for a run, and that account's right to.

    It makes nothing: it says that a run is wanted, and sees what the last run was.
    """
    if not spec.drift_of:
        return []
    run, about = spec.run, _about(spec, _DRIFT)
    rules = [
        rule("", "configmaps", "get", "patch", names=(spec.requests,)),
        rule("", "configmaps", "get", names=(spec.starter,)),
    ]
    watch = {
        "kind": "ServiceAccount",
        "name": f"{spec.drift_of}{WATCH_ENDING}",
        "namespace": f"{run.placed.tenant}{SERVING_ENDING}",
    }
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about}, *role(about, rules, [watch])
    ]  # fmt: skip


def _selector(spec: PipelineSpec) -> dict[str, str]:
    return {TENANT_LABEL: spec.run.placed.tenant, COMPONENT_LABEL: label_value(spec.starter)}


def _network_policy(spec: PipelineSpec) -> Manifest:
    """The starter reaches the API server and the resolver, and nobody reaches it."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": _about(spec),
        "spec": {
            "podSelector": {"matchLabels": _selector(spec)},
            "policyTypes": ["Ingress", "Egress"],
            "egress": [resolver_egress(), api_server_egress(spec.control_plane)],
        },
    }


def _state(spec: PipelineSpec) -> Manifest:
    """What the last run was; the starter writes it, and no update takes it away."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _about(spec)}


def _starters(spec: PipelineSpec, template: Manifest) -> list[Manifest]:
    """CronJobs that start at their time or by hand, for new data, for drift; a Job for `up`."""
    found = [
        _cron_job(
            spec, "", "schedule",
            # Where there is no time, people still start runs by it.
            {"schedule": spec.schedule, "timeZone": spec.timezone} if spec.schedule
            else {"schedule": "0 0 1 1 *", "suspend": True},
        )
    ]  # fmt: skip
    if spec.every_minutes:
        often = {"schedule": f"*/{spec.every_minutes} * * * *", "timeZone": "Etc/UTC"}
        found.append(_cron_job(spec, "-data", "new-data", often))
    if spec.drift_of:
        often = {"schedule": f"*/{spec.drift_minutes} * * * *", "timeZone": "Etc/UTC"}
        found.append(_cron_job(spec, _DRIFT, "drift", often, "--if-asked"))
    if spec.on_up:
        job = _job(spec, "up")
        text = json.dumps([template["spec"], job], sort_keys=True)
        made = f"-{sha256(text.encode()).hexdigest()[:8]}"
        # It may wait for its quota: an update doesn't wait for its end.
        notes = {"pulumi.com/skipAwait": "true"}
        about = _about(spec, made, labels=queue_labels(spec.run), annotations=notes)
        found.append({"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": job})
    return found


def _cron_job(
    spec: PipelineSpec, ending: str, reason: str, when: Mapping[str, Any], *more: str
) -> Manifest:
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": _about(spec, ending, labels={LABEL: spec.run.name}),
        "spec": {
            **when,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": _LATE_SECONDS,
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {
                "metadata": {
                    "labels": {**_about(spec)["labels"], **queue_labels(spec.run)},
                    "annotations": _about(spec)["annotations"],
                },
                "spec": _job(spec, reason, *more),
            },
        },
    }


def _job(spec: PipelineSpec, reason: str, *more: str) -> dict[str, Any]:
    """What starts a run, or doesn't: its exit statuses are those of the pods that publish."""
    about = _about(spec)
    return {
        "backoffLimit": 3,
        "activeDeadlineSeconds": _STARTER_SECONDS,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": publishing_pods(),
        "template": {
            "metadata": {"labels": about["labels"], "annotations": about["annotations"]},
            "spec": _pod(spec, reason, *more),
        },
    }


def _pod(spec: PipelineSpec, reason: str, *more: str) -> dict[str, Any]:
    run = spec.run
    size = {"cpu": "100m", "memory": "128Mi", "ephemeral-storage": "64Mi"}
    command = [
        "python", "-m", "falaj.workloads.pipelines", "start",
        "--pipeline", run.name, "--namespace", run.namespace, "--reason", reason, *more,
        *(("--requests", spec.requests) if spec.drift_of else ()),
    ]  # fmt: skip
    mounts: list[dict[str, Any]] = []
    volumes: list[dict[str, Any]] = []
    if run.dataset:
        command += ["--data", DATA]
        mounts = [{"name": "data", "mountPath": DATA, "readOnly": True}]
        claim = {"claimName": run.data, "readOnly": True}
        volumes = [{"name": "data", "persistentVolumeClaim": claim}]
    container = {
        "name": "start",
        "image": spec.image,
        "command": command,
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
        "resources": {"requests": size, "limits": size},
        "securityContext": unprivileged(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": mounts,
    }
    place = Placement(spec.flavor, spec.flavor.endswith("-spot"), None, "required", "none")
    return {
        "restartPolicy": "Never",
        "serviceAccountName": spec.starter,
        # It asks the API server for all that it does.
        "automountServiceAccountToken": True,
        "enableServiceLinks": False,
        "priorityClassName": run.priority,
        "securityContext": unprivileged_pod(fsGroup=USER, fsGroupChangePolicy="OnRootMismatch"),
        **pod_placement(run.placed, place),
        "containers": [container],
        "volumes": volumes,
    }


#: Runs are compared with the template: without one the account may make none, and has no right to.
_STEPS: Final = {"JobSet": 2, "RoleBinding": 3, "CronJob": 4, "Job": 4}


def in_steps(objects: Iterable[Manifest]) -> list[list[Manifest]]:
    """The objects of a pipeline in the order of their making: each step after those before it.

    They go the other way round: what starts runs, then its right to, then the template, then the
    account with the runs that it owns, and in the end what these need.
    """
    steps: list[list[Manifest]] = [[], [], [], [], []]
    for each in objects:
        about = each["metadata"]
        owns = each["kind"] == "ServiceAccount" and about["name"].endswith(ACCOUNT_ENDING)
        steps[1 if owns else _STEPS.get(str(each["kind"]), 0)].append(each)
    return steps


class Pipeline(pulumi.ComponentResource):
    """Trains a model again and again, and publishes what passes: one section of a stack.

    ::

        Pipeline("credit", {
            "distribution": "existing", "region": "abu-dhabi-1", "registry": registry,
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "confidential",
            "cost_center": "ai-42", "control_plane_cidrs": ["10.20.0.0/24"],
            "dataset": "credit-*", "flavor": "cpu-x86-64", "checkpoints": "runs",
            "key_secret": "acme/training-keys",
            "schedule": "0 3 * * *", "new_data": {},
            "publish": {"model": "credit", "key_secret": "acme/publishing-keys",
                        "registry_cidrs": ["10.20.0.5/32"], "least_accuracy": 0.9},
        })

    Each run is a gang as of a `TrainingJob`, and what becomes of its model: judged, optimised,
    signed, sent to the registry as the next version, for which an alias stands. There is one at a
    time: while one is on, none is started. Runs are named by their numbers, as ``credit-7``, and
    so are their folders in the claim of checkpoints.

    A pod with an account of its own starts them. It may make JobSets that equal the template but
    for name, snapshot and reason, as `Residency` has the cluster demand; `Residency` comes first.
    A change of the pipeline changes the template; runs that are on stay as they are. Where the
    pipeline goes, runs go with it, also those that are on.
    """

    runs: str
    """Label that all its runs have, and nothing else."""

    def __init__(
        self, name: str, args: PipelineArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("Pipeline"), name, None, opts)
        made: list[pulumi.Resource] = []
        for step in in_steps(manifests(spec)):
            of_templates = any(each["kind"] == "JobSet" for each in step)
            options: dict[str, Any] = (
                {"replace_on_changes": ["spec"], "delete_before_replace": True}
                if of_templates else {}
            )  # fmt: skip
            made += declare(self, name, step, depends_on=list(made), **options).values()
        self.runs = f"{LABEL}={spec.run.name},!{TEMPLATE_LABEL}"
        self.register_outputs({"runs": self.runs})
