"""A worker of a service with an experiment: some of its requests are another version's to answer.

Which ones is decided after the caller was authorised. What the candidate doesn't answer in time,
the version that serves does, and it is counted why.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Awaitable, Callable
from typing import Any, Final
from weakref import WeakSet

import orjson

from falaj.workloads.inference.connections.header_names import ARM, KNOWN, REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.experiment.arms import ARMS, LIVE, Arm, arm_of
from falaj.workloads.inference.metrics import BOUNDS
from falaj.workloads.inference.models.remote import Breaker
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.rpc.calls import pack, unpack
from falaj.workloads.inference.service import Service, log_part
from falaj.workloads.inference.settings import ExperimentSettings

MOST_BYTES: Final = 1024 * 1024
"""Of a body that goes to the candidate: to pass on more takes the first process's time from
others."""
REASONS: Final = ("away", "slow", "busy", "failed", "refused", "large")
"""Why the version that serves answered for the candidate: it isn't there, or is left alone after
failures; it didn't answer in time; its queue is full; its model failed; it refused the request;
the body is too large to pass on."""
_LONGEST: Final = 300
_CHOICES: Final[dict[bytes, Arm]] = {each.encode(): each for each in ARMS}


class Given:
    """To whom a request was given, and who answered it.

    Args:
        arm: whose it is.
        by_key: whether its key decided that, and not its sender.
    """

    __slots__ = ("__weakref__", "arm", "by_key", "counts", "version")

    def __init__(self, arm: Arm, counts: Counts, *, by_key: bool) -> None:
        self.arm: Arm = arm
        self.by_key = by_key
        self.counts = counts
        """Of the experiment in which it was given."""
        self.version: str | None = None
        """The candidate's, where it answered."""


class Counts:
    """What came of an experiment since the last look, in a form that can be added up.

    Args:
        version: the candidate.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.under_way: WeakSet[Given] = WeakSet()
        """Requests that are to be counted; of one whose client has gone, nothing is left."""
        self._found: dict[str, Any] = {}

    def add(self, name: str, of: str) -> None:
        """Count one."""
        inner = self._found.setdefault(name, {})
        inner[of] = inner.get(of, 0) + 1

    def answered(self, arm: Arm, status: int, seconds: float) -> None:
        """Count a request of an arm, whoever answered it."""
        self.add("requests", arm)
        if status >= 500:
            self.add("errors", arm)
        elif status >= 400:
            self.add("refused", arm)
        latency = self._found.setdefault(f"latency_{arm}", [0] * (len(BOUNDS) + 1))
        latency[bisect_left(BOUNDS, seconds)] += 1
        total = f"latency_{arm}_seconds"
        self._found[total] = self._found.get(total, 0.0) + seconds

    def fell_back(self, reason: str, why: str = "") -> None:
        """Count a request that the version that serves answers for the candidate."""
        self.add("fallbacks", reason)
        if why:
            self._found.setdefault("why", {})[reason] = why[:_LONGEST]

    def take(self) -> dict[str, Any]:
        """Return what there is, and begin anew."""
        found, self._found = self._found, {}
        return found


class ExperimentService(Service):
    """A worker's state where settings have an experiment."""

    experiment: ExperimentSettings
    _ask: Callable[[bytes, float], Awaitable[bytes]]
    _tell: Callable[[bytes], None]

    def begin(
        self,
        experiment: ExperimentSettings,
        ask: Callable[[bytes, float], Awaitable[bytes]],
        tell: Callable[[bytes], None],
    ) -> None:
        """Prepare to give requests away.

        Args:
            experiment: of the settings.
            ask: has the candidate answer, in so many seconds, else raises RequestError.
            tell: sends the master what was counted.
        """
        self.experiment = experiment
        self._ask, self._tell = ask, tell
        self._key = experiment.key.encode()
        self.wanted = KNOWN | {self._key, ARM}
        self._candidate: int | None = None
        self._is_ready = False
        self._name = ""
        self._breaker = Breaker()
        self._counts: Counts | None = None
        """Of the experiment that there is."""
        self._ending: list[Counts] = []
        """Of those before, whose last requests are under way, or were not told of."""
        self.answered: dict[str, int] = {}
        """Requests that the candidate answered since the last audit record, by caller."""

    def stands(self, version: int | None, *, ready: bool) -> None:
        """Take note of how the candidate is; None: there is no experiment now."""
        if version != self._candidate:
            if self._counts is not None:
                self._ending.append(self._counts)
            self._counts = Counts(version) if version is not None else None
            self._breaker = Breaker()
            self._candidate = version
            self.tell_counts()
        self._is_ready = ready
        self._name = self.experiment.name or f"{self.model.name}/{version}"

    def tell_counts(self) -> None:
        """Tell the master what was counted, and of what nothing more will be."""
        for counts in self._ending:
            self._tell_of(counts, is_over=not counts.under_way)
        self._ending = [each for each in self._ending if each.under_way]
        if self._counts is not None:
            self._tell_of(self._counts, is_over=False)

    def _tell_of(self, counts: Counts, *, is_over: bool) -> None:
        counted = counts.take()
        if counted or is_over:
            told = {"version": counts.version, "counted": counted, "over": is_over}
            self._tell(orjson.dumps(told))

    # -- requests --------------------------------------------------------------------------

    def handle(self, exchange: Exchange) -> Answer | Awaitable[Answer]:
        """Answer an admitted request, or have the candidate answer it.

        Raises:
            RequestError: the request is refused.
        """
        assert exchange.route is not None  # noqa: S101 - admitted requests have a route
        if exchange.route.name != routes.INFER or exchange.route.model in self.further:
            return super().handle(exchange)
        given = exchange.arm = self._given(exchange)
        if given is None or given.arm == LIVE:
            return self.infer(exchange)
        reason = self._why_not(exchange)
        if reason is None:
            return self._elsewhere(exchange, given)
        given.counts.fell_back(reason)
        return self.infer(exchange)

    def _given(self, exchange: Exchange) -> Given | None:
        """Decide whose a request is; None: it is in no experiment.

        Raises:
            RequestError: 400, its sender chose what there isn't.
        """
        headers = exchange.headers
        chosen = headers.get(ARM)
        if chosen is not None:
            arm = _CHOICES.get(chosen)
            if arm is None:
                raise RequestError(
                    400, f"the header {ARM.decode()} must be {' or '.join(ARMS)}; leave it out "
                    "to have the key decide",
                )  # fmt: skip
            return self._one(arm, by_key=False)
        if self._counts is None:
            return None
        value = headers.get(self._key)
        if not value or self._names_version(exchange.url):
            self._counts.add("outside", "requests")
            return None
        return self._one(arm_of(self._name, value, self.experiment.share / 100), by_key=True)

    def _one(self, arm: Arm, *, by_key: bool) -> Given | None:
        counts = self._counts
        if counts is None:
            return None
        given = Given(arm, counts, by_key=by_key)
        counts.under_way.add(given)
        return given

    def _names_version(self, url: bytes) -> bool:
        """Whether a path asks for the version that serves by its number."""
        model = f"/v2/models/{self.model.name}/infer".encode()
        return url != model and routes.path_of(url).rstrip(b"/") != model

    def _why_not(self, exchange: Exchange) -> str | None:
        if not self._is_ready:
            return "away"
        if len(exchange.content) > MOST_BYTES:
            return "large"
        return None if self._breaker.allows() else "away"

    async def _elsewhere(self, exchange: Exchange, given: Given) -> Answer:
        """Ask the candidate; where it doesn't answer, the version that serves does."""
        identity = exchange.identity
        asked = {
            "header": exchange.header_length,
            "named": exchange.headers.get(REQUEST_ID, b"").decode("latin-1"),
            "subject": identity.subject if identity is not None else "",
            "scopes": sorted(identity.scopes) if identity is not None else [],
        }
        breaker, reply = self._breaker, b""
        reason, why, body = "slow", "", b""
        try:
            reply = await self._ask(
                pack(asked, bytes(exchange.content)), self.experiment.timeout_ms / 1000
            )
        except RequestError:
            breaker.failed()
        except BaseException:
            breaker.given_up()
            raise
        else:
            head, body = unpack(reply)
            reason, why = head["outcome"], head.get("why", "")
            # One that refuses is there, and one that is busy is soon again.
            (breaker.failed if reason in ("away", "failed") else breaker.succeeded)()
            if reason == "answered":
                given.version = str(head["version"])
                return Answer.of_tensors(body, head["length"])
        given.counts.fell_back(reason, why)
        answer = self.infer(exchange)
        return answer if isinstance(answer, Answer) else await answer

    def finished(self, exchange: Exchange, client: bytes, status: int, sent: int) -> float:
        """Write the access line of an answer, which says who answered, and count it."""
        given: Given | None = exchange.arm
        if given is None:
            return super().finished(exchange, client, status, sent)
        # A head that is remembered is that of requests which others may answer.
        log = exchange.log
        if given.version is not None:
            exchange.log = log_part(exchange) + b',"version":' + given.version.encode()
            if exchange.identity is not None:
                subject = exchange.identity.subject
                self.answered[subject] = self.answered.get(subject, 0) + 1
        now = super().finished(exchange, client, status, sent)
        exchange.log = log
        if given.by_key:
            given.counts.answered(given.arm, status, max(0.0, now - exchange.started))
        else:
            given.counts.add("chosen", given.arm)
        given.counts.under_way.discard(given)
        return now
