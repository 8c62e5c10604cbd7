"""What the candidate's process does with requests: it answers them as a worker does its own."""

from __future__ import annotations

import asyncio
import math
import time
import traceback
from collections.abc import Callable
from typing import Any, Final

from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections.header_names import REQUEST_ID
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.model_service import ModelService
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.rpc.calls import pack, unpack

NUMBER_BYTES: Final = 8
"""Of the number that a request has between two processes."""


class CandidateRuns:
    """Answers requests that workers pass on.

    Args:
        service: of the candidate's version, which nobody is connected to.
        tell: sends the master a message.
    """

    def __init__(self, service: ModelService, tell: Callable[[int, bytes], None]) -> None:
        self._service = service
        self._tell = tell
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, message: bytes) -> None:
        """Begin to answer a request."""
        task = asyncio.ensure_future(self._answer(message[:NUMBER_BYTES], message[NUMBER_BYTES:]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, number: bytes, message: bytes) -> None:
        try:
            head, body = await self._outcome(message)
        except RequestError as error:
            self._service.not_inferred(error.status, 0.0)
            head, body = {"outcome": _outcome_of(error), "why": error.message}, b""
        except Exception:  # a fault of ours must not end the others
            traceback.print_exc()
            head, body = {"outcome": "failed", "why": "see the server's log"}, b""
        watched = self._service.watched
        if watched is not None and watched.sender is not None:
            # Labels may follow at once.
            watched.sender.flush()
        self._tell(channel.EXPERIMENT_DONE, number + pack(head, body))

    async def _outcome(self, message: bytes) -> tuple[dict[str, Any], bytes]:
        asked, content = unpack(message)
        headers = {REQUEST_ID: asked["named"].encode("latin-1")} if asked["named"] else {}
        # It was authorised where it came in.
        identity = Identity(asked["subject"], frozenset(asked["scopes"]), "passed on", math.inf)
        exchange = Exchange(
            method=b"POST", headers=headers, identity=identity, header_length=asked["header"],
            content=content, received=len(content), started=time.perf_counter(),
        )  # fmt: skip
        answer = self._service.infer(exchange)
        if not isinstance(answer, Answer):
            answer = await answer
        head = {
            "outcome": "answered",
            "version": self._service.model.version,
            "length": answer.header_length,
        }
        return head, bytes(answer.body)


def _outcome_of(error: RequestError) -> str:
    if error.status == 503:
        return "busy"
    return "failed" if error.status >= 500 else "refused"
