"""Who leads: one of the replicas at a time, by a Lease that it renews.

As client-go's leader election has it: nobody compares clocks. A replica that sees the same renewal
for the lease's whole time takes over, and a leader that couldn't renew for two thirds of it stops
by itself. https://github.com/kubernetes/client-go/blob/master/tools/leaderelection/leaderelection.go
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from falaj.workloads.api_server import CONFLICT, ApiError
from falaj.workloads.documents import mapping
from falaj.workloads.repair.api import Api

_API: Final = "coordination.k8s.io/v1"


class Lease:
    """The lease, as one replica sees it."""

    def __init__(
        self, api: Api, place: tuple[str, str], holder: str, seconds: int, *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """Nothing is asked yet.

        Args:
            api: the API server.
            place: namespace and name.
            holder: this replica's name, which no other has.
            seconds: after which others take over from a leader that is silent.
            clock: seconds that only go forward.
        """
        namespace, name = place
        self._api = api
        self._folder = f"/apis/{_API}/namespaces/{namespace}/leases"
        self._about = {"name": name, "namespace": namespace}
        self._holder = holder
        self._seconds = seconds
        self._clock = clock
        self._seen: tuple[object, object] = (None, None)
        self._seen_at = 0.0
        self._renewed_at: float | None = None

    @property
    def leads(self) -> bool:
        """Whether this replica may act."""
        if self._renewed_at is None:
            return False
        return self._clock() - self._renewed_at < self._seconds * 2 / 3

    async def renew(self) -> bool:
        """Take the lease or renew it, if it is ours or free; whether this replica leads.

        Raises:
            ApiError: the API server isn't reached, or lets us not.
        """
        asked_at = self._clock()
        try:
            found = await self._api.request("GET", f"{self._folder}/{self._about['name']}")
        except ApiError as error:
            if not error.is_missing:
                raise
            found = None
        spec: dict[str, Any] = (found or {}).get("spec") or {}
        mark = (spec.get("holderIdentity"), spec.get("renewTime"))
        if mark != self._seen:
            self._seen, self._seen_at = mark, asked_at
        of_others = bool(spec.get("holderIdentity")) and spec["holderIdentity"] != self._holder
        if of_others and asked_at - self._seen_at < self._seconds:
            self._renewed_at = None
            return False
        try:
            await self._write(found, self._holder)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            self._renewed_at = None
            return False
        # Of when we asked: what the others count from is later.
        self._renewed_at = asked_at
        return True

    async def release(self) -> None:
        """Let another replica lead at once."""
        if not self.leads:
            return
        self._renewed_at = None
        found = await self._api.request("GET", f"{self._folder}/{self._about['name']}")
        if mapping(found.get("spec")).get("holderIdentity") == self._holder:
            await self._write(found, "")

    async def _write(self, found: dict[str, Any] | None, holder: str) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        before: dict[str, Any] = (found or {}).get("spec") or {}
        spec = {
            **before, "holderIdentity": holder, "leaseDurationSeconds": self._seconds,
            "renewTime": now,
        }  # fmt: skip
        if before.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + bool(found)
        body = {"apiVersion": _API, "kind": "Lease", "metadata": self._about, "spec": spec}
        if found is None:
            await self._api.request("POST", self._folder, body)
            return
        body["metadata"] = found["metadata"]
        await self._api.request("PUT", f"{self._folder}/{self._about['name']}", body)
