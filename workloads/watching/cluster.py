"""The world of a watch in a cluster: a service's replicas, and a pipeline that may be asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from falaj.workloads.api_server import ApiError
from falaj.workloads.errors import WorkloadError
from falaj.workloads.hosts import is_private
from falaj.workloads.pipelines.asking import Asking, Request
from falaj.workloads.pipelines.starting import ACCOUNT_ENDING, STATE
from falaj.workloads.watching.exchange import NoAnswerError
from falaj.workloads.watching.ladder import NoDataError, Source, Updated
from falaj.workloads.watching.memory import Carrier, Pending, WatchError
from falaj.workloads.watching.report import Report, digest_of
from falaj.workloads.watching.webhook import Webhook, WebhookError

_MISSING: Final = (403, 404)


@dataclass(frozen=True)
class Wanted:
    """What is asked of a watch in a cluster."""

    steps: tuple[str, ...]
    carriers: tuple[Carrier, ...]
    cool_down_hours: float
    most_retrainings_per_week: int


@dataclass
class Cluster:
    """What a watch looks at and acts on, of a service in a cluster.

    Attributes:
        wanted: what is asked.
        look: what the replicas report together. It raises NoAnswerError.
        asking: the pipeline that trains anew; None: none does.
        webhook: where messages go; None: nowhere.
    """

    wanted: Wanted
    look: Callable[[], Report]
    asking: Asking | None = None
    webhook: Webhook | None = None
    _served: int | None = None
    _since: dict[int, float | None] = field(default_factory=dict[int, float | None])

    def settings(self) -> Wanted:
        """What is asked of the watch, as its Deployment says it."""
        return self.wanted

    def report(self) -> Report:
        """What the replicas report together.

        Replicas come and go while a version is drifted: since when it is, is what it was when
        that was seen first.
        """
        found = self.look()
        self._served = found.version
        if found.state != "drifted":
            self._since.clear()
            return found
        return found.since_when(self._since.setdefault(found.version, found.since))

    def served(self) -> int | None:
        """The version that the replicas said they serve, at the last look."""
        return self._served

    def source(self, report: Report, now: float) -> Source:
        """The pipeline: it is asked once for each time that something drifted."""
        del now
        if self.asking is None:
            raise NoDataError("no pipeline is named that could be asked")
        pipeline = self.asking.pipeline
        try:
            self.asking.asked()
        except (ApiError, WorkloadError) as error:
            # Before anything is said to be begun.
            raise NoDataError(self._refused(error)) from None
        digest = digest_of({"pipeline": pipeline, "episode": report.episode})
        return Source(f"pipeline {pipeline}", digest)

    def learned(self) -> str:
        """Nothing: which data are new is what the pipeline's starter knows."""
        return ""

    def dataset(self) -> None:
        """Nothing: there is no stack's file here."""
        return

    def retrain(self, source: Source, report: Report, signal: str) -> Updated:
        """Ask the pipeline for a run; nobody waits for it."""
        asking = self._asking()
        document = {
            "model": report.model, "version": report.version, "since": report.since,
            "drifted": list(report.drifted)[:20], "episode": report.episode,
        }  # fmt: skip
        try:
            asking.ask(Request(signal, document))
        except ApiError as error:
            # Nothing was begun: it is tried again at the next look.
            return Updated("busy", self._refused(error))
        return Updated("asked", f"{source.shown} is asked for a run on newer data")

    def put_back(self, pending: Pending) -> None:
        """Ask for nothing any more."""
        del pending
        if self.asking is None:
            return
        try:
            self.asking.withdraw()
        except ApiError as error:
            # Who may not ask hasn't asked.
            if error.status not in _MISSING:
                raise WatchError(self._refused(error)) from None

    def follow(self, *, drifted: bool) -> str:
        """Whether the pipeline's starter took up what it was asked for.

        What it didn't, as there are no newer data yet, isn't wanted once nothing drifts.
        """
        if self.asking is None:
            return ""
        pipeline = self.asking.pipeline
        try:
            request = self.asking.asked()
            if request is None:
                return ""
            last = self.asking.started(f"{pipeline}{ACCOUNT_ENDING}", STATE)
            if last.get("asked") == request.signal:
                name = last.get("name")
                return f"pipeline {pipeline} started its run {name} since it was asked"
            if drifted:
                return ""
            self.asking.withdraw()
        except (ApiError, WorkloadError) as error:
            raise NoAnswerError(self._refused(error)) from None
        return f"pipeline {pipeline} isn't asked any more: nothing drifts now"

    def send(self, message: Mapping[str, Any], delivery: str, now: float, *, by: Carrier) -> None:
        """Send to the webhook, if there is one."""
        if self.webhook is None or by != "webhook":
            raise WebhookError("there is no webhook any more", for_good=True)
        self.webhook.send(message, delivery, now)

    def _asking(self) -> Asking:
        if self.asking is None:
            raise WatchError("no pipeline is named that could be asked")
        return self.asking

    def _refused(self, error: ApiError | WorkloadError) -> str:
        pipeline = self._asking().pipeline
        if isinstance(error, ApiError) and error.status in _MISSING:
            return (
                f"pipeline {pipeline} can't be asked for a run: {error}; give it onDrift with the "
                "name of this service, and bring its stack up"
            )
        return f"pipeline {pipeline} can't be asked for a run now: {error}"


def refused_host(host: str) -> str | None:
    """Why nothing may be sent to a host, by what it is called; None: by its addresses it may."""
    return None if is_private(host) else "allowed: names and addresses of one's own networks"
