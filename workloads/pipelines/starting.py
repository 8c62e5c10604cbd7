"""One run of a pipeline: a copy of its template under the next number, or the reason for none.

The template says what a run is, and the cluster refuses whatever else is made by the account that
starts runs (components/kubernetes/admission/pipelines.py). That there is one run at a time is kept
by names: a run is called by its number, and the API server makes no name twice.

A run is owned by the account that starts it: where the pipeline goes, and the account with it, the
cluster removes the run, and the account is there until the run's pods are gone.
"""

from __future__ import annotations

import copy
import datetime
import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from falaj.workloads.api_requests import ApiServer
from falaj.workloads.api_server import CONFLICT, ApiError
from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.pipelines.asking import Request, read_request
from falaj.workloads.pipelines.snapshots import Snapshot, newest

# As components/catalogue/pipelines.py has them, which a pod doesn't have.
LABEL: Final = "falaj.io/pipeline"
TEMPLATE_LABEL: Final = "falaj.io/pipeline-template"
ACCOUNT_ENDING: Final = "-pipeline"
QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
QUEUE_NOTE: Final = "falaj.io/queue"
DATASET_NOTE: Final = "falaj.io/dataset"
DIGEST_NOTE, REASON_NOTE = RUN_NOTES = ("falaj.io/data-digest", "falaj.io/reason")

REASONS: Final = ("schedule", "new-data", "up", "by-hand", "drift")
"""Why a run is started."""
_QUIET: Final = ("new-data", "up")
"""Reasons that come before there are data: the first ones start the first run."""
STATE: Final = "last.json"
"""Key of the ConfigMap with what the last run was."""
_MANAGERS: Final = ("pulumi.com/", "kubectl.kubernetes.io/", QUEUE_NOTE)
"""Beginnings of annotations that a run doesn't take over from its template."""
_WHO_ASKS: Final = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
_FORBIDDEN: Final = 403
_TRIES: Final = 4
_PAUSE_SECONDS: Final = 2.0


@dataclass(frozen=True)
class Outcome:
    """What became of a start."""

    started: str | None
    """Name of the run; None where none was started."""
    reason: str
    """Why it was to be started."""
    why: str = ""
    """Why none was started; empty where one was."""
    dataset: str = ""
    digest: str = ""

    def document(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)


@dataclass(frozen=True)
class _Last:
    """The run before."""

    number: int
    digest: str
    made: datetime.datetime | None = None
    """When its data were, as far as that was written down."""
    asked: str = ""
    """Signal of the last request that a run was started with or after."""

    def had(self, snapshot: Snapshot) -> bool:
        """Whether data are its own, or older: newer ones may be unreadable for a while."""
        older = self.made is not None and snapshot.made < self.made
        return older or snapshot.digest == self.digest


@dataclass(frozen=True)
class Starter:
    """Starts runs of one pipeline."""

    api: ApiServer
    pipeline: str
    namespace: str
    data: Path | None
    """Folder of datasets; None where its program has data of its own."""
    say: Callable[[str], None]
    """Is told which datasets are left out, and why."""
    sleep: Callable[[float], None] = time.sleep
    requests: str | None = None
    """Name of the ConfigMap in which who watches drift asks for a run; None: nobody does."""

    def start(self, reason: str, *, if_asked: bool = False) -> Outcome:
        """Start a run, unless one is on, or its data were those of the last run.

        Args:
            reason: one of `REASONS`; ``new-data`` alone asks whether there are any.
            if_asked: start none but where one was asked for that no run was started for since,
                and which there are new data for.

        Raises:
            WorkloadError: there is no template or no dataset.
            ApiError: the API server refused something, or wasn't reached.
        """
        template = self.api.get(f"{self._sets}/{self.pipeline}")
        runs = self._runs()
        active = [each["metadata"]["name"] for each in runs if not _ended(each)]
        if active:
            return Outcome(None, reason, f"{', '.join(sorted(active))} is still on")
        last, request = self._last(runs), self._request()
        if if_asked and (request is None or request.signal == last.asked):
            why = "nobody asks for a run" if request is None else "a run was started for it"
            return Outcome(None, reason, why)
        snapshot, pattern = None, _pattern(template)
        if self.data is not None and pattern:
            snapshot = newest(self.data, pattern, self.say)
            if snapshot is None:
                why = f"there is no snapshot {pattern} below {self.data}"
                if reason in _QUIET or if_asked:
                    return Outcome(None, reason, why)
                raise WorkloadError(
                    f"{why}: make one with python -m falaj.workloads.training dataset, or change "
                    f"the pipeline's dataset"
                )
        if (reason == "new-data" or if_asked) and snapshot is not None and last.had(snapshot):
            return Outcome(
                None, reason, f"{snapshot.path} was the last run's, or is older: nothing is newer",
                snapshot.path, snapshot.digest,
            )  # fmt: skip
        asked = request.signal if request is not None else last.asked
        return self._make(last.number + 1, reason, snapshot, asked)

    @property
    def _sets(self) -> str:
        return f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{self.namespace}/jobsets"

    @property
    def _state(self) -> str:
        name = f"{self.pipeline}{ACCOUNT_ENDING}"
        return f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"

    def _runs(self) -> list[dict[str, Any]]:
        chosen = f"{LABEL}={self.pipeline},!{TEMPLATE_LABEL}"
        return self.api.items(self._sets, labelSelector=chosen)

    def _last(self, runs: list[dict[str, Any]]) -> _Last:
        """The last run, by what was written down, or by itself where nobody came to that."""
        kept = mapping(self.api.get(self._state).get("data")).get(STATE)
        found, asked = [_Last(0, "")], ""
        if kept is not None:
            try:
                state = json.loads(kept)
                asked = str(state.get("asked", ""))
                found.append(_Last(int(state["number"]), str(state["digest"]), _made(state)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise WorkloadError(
                    f"{STATE} of ConfigMap {self.pipeline}{ACCOUNT_ENDING} can't be read "
                    f"({error}): remove the key, and runs are numbered by those that are there"
                ) from error
        for each in runs:
            about = each["metadata"]
            number = re.fullmatch(rf"{re.escape(self.pipeline)}-([0-9]+)", about["name"])
            if number is not None:
                notes = mapping(about.get("annotations"))
                found.append(_Last(int(number[1]), str(notes.get(DIGEST_NOTE, ""))))
        return replace(max(found, key=lambda each: each.number), asked=asked)

    def _request(self) -> Request | None:
        """What who watches drift asks for."""
        if self.requests is None:
            return None
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{self.requests}"
        return read_request(self.api.get(path), self.requests)

    def _make(self, number: int, reason: str, snapshot: Snapshot | None, asked: str) -> Outcome:
        name, owner = f"{self.pipeline}-{number}", self._owner()
        for again in range(_TRIES):
            # What the cluster compares with may be a moment older or newer than what was read.
            template = self.api.get(f"{self._sets}/{self.pipeline}")
            try:
                self.api.create(self._sets, run_of(template, name, reason, snapshot, owner))
                break
            except ApiError as error:
                if error.status == CONFLICT:
                    return Outcome(None, reason, self._taken(name))
                if error.status != _FORBIDDEN or again == _TRIES - 1:
                    raise
            self.sleep(_PAUSE_SECONDS)
        path, digest = (snapshot.path, snapshot.digest) if snapshot is not None else ("", "")
        made = snapshot.made.isoformat() if snapshot is not None else None
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        state = {
            "number": number, "name": name, "reason": reason, "dataset": path, "digest": digest,
            "made": made, "started": now, "asked": asked,
        }  # fmt: skip
        self.api.merge(self._state, {"data": {STATE: json.dumps(state, sort_keys=True)}})
        return Outcome(name, reason, "", path, digest)

    def _owner(self) -> dict[str, Any]:
        """The account of the starter, as the API server knows it: a former one of its name is
        another."""
        asked = self.api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", _WHO_ASKS)
        user = mapping(mapping(asked.get("status")).get("userInfo"))
        return owner_of(f"{self.pipeline}{ACCOUNT_ENDING}", str(user.get("uid", "")))

    def _taken(self, name: str) -> str:
        """Why a run of the name can't be started. Raises WorkloadError: something else has it."""
        for each in self.api.items(self._sets):
            about = each["metadata"]
            labels = mapping(about.get("labels"))
            if about["name"] == name and labels.get(LABEL) != self.pipeline:
                raise WorkloadError(
                    f"a JobSet {name} is there that is no run of {self.pipeline}, whose next run "
                    "would be called so: remove it, or give it another name"
                )
        return f"{name} was started by another one just now"


def _made(state: dict[str, Any]) -> datetime.datetime | None:
    """When a run's data were made. Raises ValueError, TypeError: it is no time with a zone."""
    if (written := state.get("made")) is None:
        return None
    made = datetime.datetime.fromisoformat(written)
    if made.tzinfo is None:
        raise ValueError(f"{written} has no time zone")
    return made


def owner_of(account: str, uid: str) -> dict[str, Any]:
    """How a run names the account that owns it, which is there until the run's pods are gone.

    https://kubernetes.io/docs/concepts/architecture/garbage-collection/#foreground-deletion

    Args:
        account: its name.
        uid: the cluster's name of it.
    """
    return {
        "apiVersion": "v1", "kind": "ServiceAccount", "name": account, "uid": uid,
        "blockOwnerDeletion": True,
    }  # fmt: skip


def run_of(
    template: dict[str, Any], name: str, reason: str, snapshot: Snapshot | None,
    owner: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """The JobSet of a run.

    Args:
        template: as it is in the cluster.
        name: the run's.
        reason: why it is started.
        snapshot: what it trains on; None where its program has data of its own.
        owner: with what it goes, of `owner_of`.
    """
    about = template["metadata"]
    notes = dict(about.get("annotations") or {})
    labels = {key: value for key, value in about["labels"].items() if key != TEMPLATE_LABEL}
    spec = copy.deepcopy(template["spec"])
    # Controllers decide of these.
    for each in ("managedBy", "suspend"):
        spec.pop(each, None)
    for pod in _pods(spec):
        of_pod: dict[str, Any] = pod.get("metadata", {}).get("annotations") or {}
        if snapshot is not None and DATASET_NOTE in of_pod:
            of_pod[DATASET_NOTE] = snapshot.path
    return {
        "apiVersion": template["apiVersion"],
        "kind": template["kind"],
        "metadata": {
            "name": name,
            "namespace": about["namespace"],
            "labels": {**labels, QUEUE_LABEL: notes[QUEUE_NOTE]},
            "annotations": {
                **{key: each for key, each in notes.items() if not key.startswith(_MANAGERS)},
                REASON_NOTE: reason,
                DIGEST_NOTE: snapshot.digest if snapshot is not None else "",
            },
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _pods(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [each["template"]["spec"]["template"] for each in spec["replicatedJobs"]]


def _pattern(template: dict[str, Any]) -> str:
    """Which snapshots the template allows; empty where its program has data of its own."""
    pods = _pods(template["spec"])
    notes = [mapping(each.get("metadata", {}).get("annotations")) for each in pods]
    return next((each[DATASET_NOTE] for each in notes if DATASET_NOTE in each), "")


def _ended(run: dict[str, Any]) -> bool:
    """Whether a run is over: what is being removed may still have pods."""
    state = run.get("status", {}).get("terminalState")
    return bool(state) and not run["metadata"].get("deletionTimestamp")
