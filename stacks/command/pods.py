"""What a team's workloads in a cluster do and say, by the rights of whoever asks."""

from __future__ import annotations

import contextlib
import http
import json
import re
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import urllib3
import yaml
from kubernetes.client import (
    ApiClient,
    BatchV1Api,
    Configuration,
    CoreV1Api,
    CustomObjectsApi,
)
from kubernetes.client.exceptions import ApiException
from kubernetes.config import ConfigException, load_kube_config, load_kube_config_from_dict

from falaj.components.catalogue.clusters import SERVING_ENDING, TENANT_LABEL, TRAINING_ENDING
from falaj.components.catalogue.pipelines import ACCOUNT_ENDING
from falaj.components.kubernetes._placed import COMPONENT_LABEL
from falaj.components.kubernetes.gpu_queues.queues import API as KUEUE
from falaj.components.kubernetes.training import publication
from falaj.components.nearest import nearest
from falaj.components.specification.node_pools import label_value
from falaj.stacks.command.kubeconfig import USUAL, VARIABLE
from falaj.stacks.errors import StackError
from falaj.stacks.settings.in_cluster import WorkloadsSettings
from falaj.wire.documents import mapping, sequence

if TYPE_CHECKING:
    from pydantic import BaseModel

_JOB_SETS: Final = "jobset.x-k8s.io/v1alpha2"
_SECONDS: Final = 30.0
"""An API server that is there answers at once; one behind a dead tunnel never does."""


_NOBODY: Final = "system:anonymous"
"""Who calls without a login:
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#anonymous-requests"""


@dataclass(frozen=True)
class Workload:
    """One of a stack's workloads."""

    kind: str
    name: str
    namespace: str
    labels: Mapping[str, Sequence[str]]
    """Of its pods alone: allowed values by key."""
    queued: str = ""
    """What Kueue admits for it: objects of names of this form. Empty where nothing waits for
    quota."""

    @property
    def selector(self) -> str:
        """The same, in the form of the API."""
        return ",".join(f"{key} in ({','.join(values)})" for key, values in self.labels.items())

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def workloads(settings: WorkloadsSettings) -> tuple[Workload, ...]:
    """The workloads of a stack, in the order of its sections."""

    def in_training(
        kind: str, sections: Mapping[str, BaseModel], endings: Sequence[str], *, queued: bool
    ) -> list[Workload]:
        return [
            Workload(
                kind, name,
                getattr(section, "namespace", None) or f"{settings.tenant}{TRAINING_ENDING}",
                {
                    TENANT_LABEL: (settings.tenant,),
                    COMPONENT_LABEL: tuple(label_value(name + each) for each in endings),
                },
                name if queued else "",
            )
            for name, section in sections.items()
        ]  # fmt: skip

    gangs = (
        ("training job", settings.training_jobs),
        ("sweep", settings.sweeps),
        ("federated training", settings.federated_trainings),
        ("batch inference", settings.batch_inferences),
    )
    of_pipelines = in_training(
        "pipeline", settings.pipelines, ("", publication.ENDING, ACCOUNT_ENDING), queued=True
    )
    return (
        *(
            each
            for kind, sections in gangs
            for each in in_training(kind, sections, ("", publication.ENDING), queued=True)
        ),
        # What waits are its runs; its template, of its name, always does.
        *(replace(each, queued=rf"{each.name}-[0-9]+") for each in of_pipelines),
        *(
            Workload(
                "inference service", name, f"{settings.tenant}{SERVING_ENDING}",
                {
                    "app.kubernetes.io/name": (name,),
                    "app.kubernetes.io/component": ("inference", "judge", "watch"),
                },
            )
            for name in settings.inference_services
        ),
        *in_training("workspace", settings.workspaces, ("-workspace",), queued=False),
    )  # fmt: skip


def named(
    found: Sequence[Workload], name: str | None, path: Path, *,
    argument: str = "WORKLOAD", none: str = "as it has none",
) -> tuple[Workload, ...]:  # fmt: skip
    """Those of a name; all where none is given.

    Args:
        found: of the stack.
        name: which is given.
        path: the stack's file, for people.
        argument: by which the name is given.
        none: why there is none to choose where there are none.

    Raises:
        StackError: there is none of that name.
    """
    chosen = tuple(each for each in found if name in (None, each.name))
    if not chosen and name is not None:
        known = sorted({each.name for each in found})
        near = nearest(name, known)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise StackError(
            f"{argument}: given {name!r}, which {path} doesn't have; allowed: "
            f"{', '.join(known) or f'none, {none}'}{hint}"
        )
    return chosen


def client_of_file(kubeconfig: str | None, context: str | None) -> ApiClient:
    """A client by a kubeconfig, as the engine's provider finds it.

    Args:
        kubeconfig: its path. None: what ``KUBECONFIG`` names, else ``~/.kube/config``.
        context: of it. None: the current one.

    Raises:
        StackError: it can't be read, or has no such context.
    """
    settings = Configuration()
    try:
        load_kube_config(kubeconfig, context, client_configuration=settings, persist_config=False)
    except (ConfigException, yaml.YAMLError, OSError, TypeError, KeyError) as error:
        raise StackError(
            f"the cluster can't be asked: {kubeconfig or f'{VARIABLE} or {USUAL}'}, context "
            f"{context or 'that is current'}: {error}\n"
            "  falaj:kubeconfig and falaj:context of the stack say which; `kubectl config "
            "get-contexts` lists those there are"
        ) from None
    return _client(settings)


def client_of_text(kubeconfig: str) -> ApiClient:
    """A client by a kubeconfig of a cloud, which logs in by the cloud's own program.

    Raises:
        StackError: the program isn't there, or doesn't log in.
    """
    settings = Configuration()
    try:
        load_kube_config_from_dict(json.loads(kubeconfig), client_configuration=settings)
    except (ConfigException, OSError) as error:
        raise StackError(
            f"the login to the cluster failed: {error}\n  log in to the cloud first, with "
            "`aws sso login` or `az login`"
        ) from None
    return _client(settings)


def _client(settings: Configuration) -> ApiClient:
    settings.retries = urllib3.Retry(total=1, redirect=0)  # type: ignore[assignment]
    return ApiClient(configuration=settings)


@dataclass(frozen=True)
class Container:
    """A container that has something to say: it runs, has run, or can't begin."""

    pod: str
    name: str
    state: str
    """In a word, with the reason where it isn't well."""
    has_begun: bool

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.pod}, {self.name}: {self.state}"


class Cluster:
    """What is asked of a cluster; all of it raises StackError where the cluster refuses it."""

    def __init__(self, client: ApiClient) -> None:
        self._batch = BatchV1Api(client)
        self._core = CoreV1Api(client)
        self._custom = CustomObjectsApi(client)
        self._host = str(client.configuration.host)

    def pods(self, workload: Workload) -> list[dict[str, Any]]:
        """Its pods, the oldest first."""
        with self._explained(f"the pods of {workload} in {workload.namespace}"):
            answer: Any = self._core.list_namespaced_pod(
                workload.namespace, label_selector=workload.selector, _preload_content=False,
                _request_timeout=_SECONDS,
            )  # fmt: skip
        found = sequence(json.loads(answer.data).get("items"))
        return sorted(found, key=lambda each: each["metadata"]["creationTimestamp"])

    def log(self, workload: Workload, container: Container, lines: int) -> list[str]:
        """The last lines of what a container wrote."""
        with self._explained(f"the log of {container.pod} in {workload.namespace}"):
            answer: Any = self._core.read_namespaced_pod_log(
                container.pod, workload.namespace, container=container.name, tail_lines=lines,
                _preload_content=False, _request_timeout=_SECONDS,
            )  # fmt: skip
        return answer.data.decode("utf-8", "replace").splitlines()

    def why_it_waits(self, workload: Workload) -> str:
        """What Kueue says of a workload that has no pods; empty where it says nothing."""
        if not workload.queued:
            return ""
        group, _, version = KUEUE.partition("/")
        with self._explained(f"Kueue's workloads in {workload.namespace}"):
            answer: Any = self._custom.list_namespaced_custom_object(
                group, version, workload.namespace, "workloads", _request_timeout=_SECONDS
            )
        for each in sequence(mapping(answer).get("items")):
            owners = sequence(each["metadata"].get("ownerReferences"))
            if any(re.fullmatch(workload.queued, owner["name"]) for owner in owners):
                for condition in sequence(mapping(each.get("status")).get("conditions")):
                    if (condition["type"], condition["status"]) == ("QuotaReserved", "False"):
                        return str(condition.get("message", ""))
        return ""

    def job_sets(self, namespace: str, labels: str) -> list[dict[str, Any]]:
        """JobSets that a selector finds."""
        group, _, version = _JOB_SETS.partition("/")
        with self._explained(f"the JobSets in {namespace}"):
            answer: Any = self._custom.list_namespaced_custom_object(
                group, version, namespace, "jobsets", label_selector=labels,
                _request_timeout=_SECONDS,
            )  # fmt: skip
        return sequence(mapping(answer).get("items"))

    def failure_of(self, workload: Workload) -> str:
        """Why a workload that is one JobSet has failed; empty where it hasn't."""
        for each in self.job_sets(workload.namespace, workload.selector):
            for condition in sequence(mapping(each.get("status")).get("conditions")):
                if (condition["type"], condition["status"]) == ("Failed", "True"):
                    return str(condition.get("message") or condition.get("reason") or "Failed")
        return ""

    def cron_job(self, namespace: str, name: str) -> dict[str, Any]:
        """A CronJob, as it is in the cluster."""
        with self._explained(f"the CronJob {name} in {namespace}"):
            answer: Any = self._batch.read_namespaced_cron_job(
                name, namespace, _preload_content=False, _request_timeout=_SECONDS
            )
        return json.loads(answer.data)

    def start_job(self, namespace: str, job: Mapping[str, Any]) -> str:
        """Make a Job; its name."""
        body: Any = job
        with self._explained(f"a Job in {namespace}"):
            answer: Any = self._batch.create_namespaced_job(
                namespace, body, _preload_content=False, _request_timeout=_SECONDS
            )
        return str(json.loads(answer.data)["metadata"]["name"])

    @contextlib.contextmanager
    def _explained(self, what: str) -> Generator[None]:
        try:
            yield
        except ApiException as error:
            message = str(mapping(_document(error.body)).get("message") or error.reason)
            if error.status == http.HTTPStatus.NOT_FOUND:
                advice = "it isn't there: bring the stack up first"
            elif error.status == http.HTTPStatus.UNAUTHORIZED or _NOBODY in message:
                # The client goes on without a token where the program that logs in fails.
                advice = "the login has ended, or there was none: log in again"
            elif error.status == http.HTTPStatus.FORBIDDEN:
                advice = "who logs in here has no right to it: falaj:tenants says who has which"
            else:
                advice = "try again in a moment"
            raise StackError(
                f"{self._host} refuses {what}: {message} (status {error.status})\n  {advice}"
            ) from None
        except urllib3.exceptions.HTTPError as error:
            raise StackError(
                f"{self._host} doesn't answer about {what}: {error}\n"
                "  is it in reach from here? Private API servers need the network of the cluster"
            ) from None


def _document(body: object) -> object:
    try:
        return json.loads(body) if isinstance(body, str | bytes) else None
    except ValueError:
        return None


def containers(pod: Mapping[str, Any]) -> list[Container]:
    """A pod's containers that have something to say.

    Those that ran before the others began are told of where they aren't done: what keeps the rest.
    """
    name, status = str(pod["metadata"]["name"]), mapping(pod.get("status"))
    found: list[Container] = []
    for kind in ("initContainerStatuses", "containerStatuses"):
        for each in sequence(status.get(kind)):
            state, ended = mapping(each.get("state")), mapping(each.get("lastState"))
            done = mapping(state.get("terminated"))
            if kind.startswith("init") and done.get("exitCode") == 0:
                continue
            begun = bool(done or "running" in state or ended)
            if begun or not _begins(state):
                found.append(Container(name, str(each["name"]), _state(state), begun))
    return found


def _begins(state: Mapping[str, Any]) -> bool:
    """Whether a container only waits for its turn."""
    reason = mapping(state.get("waiting")).get("reason", "PodInitializing")
    return reason in ("PodInitializing", "ContainerCreating")


def _state(state: Mapping[str, Any]) -> str:
    if "running" in state:
        return "running"
    if ended := mapping(state.get("terminated")):
        return f"ended with status {ended.get('exitCode')} ({ended.get('reason', 'no reason')})"
    waiting = mapping(state.get("waiting"))
    return ": ".join(filter(None, ("waits", waiting.get("reason"), waiting.get("message"))))


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """Pods by their state, as ``1 Running, not ready, 2 Succeeded``."""
    counted = Counter(map(_phase, found))
    return ", ".join(f"{count} {phase}" for phase, count in sorted(counted.items()))


def _phase(pod: Mapping[str, Any]) -> str:
    status = mapping(pod.get("status"))
    phase = str(status.get("phase", "Unknown"))
    if pod["metadata"].get("deletionTimestamp"):
        return "ending"
    if phase != "Running":
        return phase
    ready = [each for each in sequence(status.get("conditions")) if each["type"] == "Ready"]
    return phase if ready and ready[0]["status"] == "True" else "Running and not ready"


def unplaced(pod: Mapping[str, Any]) -> str:
    """Why a pod has no machine; empty where it has one."""
    for each in sequence(mapping(pod.get("status")).get("conditions")):
        if (each["type"], each["status"]) == ("PodScheduled", "False"):
            return str(each.get("message") or each.get("reason") or "")
    return ""
