"""What the shadow's process does with copies: runs them one after the other, and compares."""

from __future__ import annotations

import asyncio
import time
import traceback
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import orjson

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.metrics import BOUNDS
from falaj.workloads.inference.model_service import ModelService
from falaj.workloads.inference.models.remote import AnswerError, decode
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.shadow.agreement import compare, distributions_of
from falaj.workloads.inference.shadow.copies import Copy

NICENESS: Final = 19
"""Of the shadow's process: it has the time that nothing else on the machine wants."""
_LONGEST: Final = 300


class ShadowRuns:
    """Runs copies of requests.

    Args:
        service: of the shadow's version.
        pool: a thread of its own.
        manifest: of the version's package.
        tell: sends the master a message.
    """

    def __init__(
        self,
        service: ModelService,
        pool: ThreadPoolExecutor,
        manifest: Mapping[str, Any],
        tell: Callable[[int, bytes], None],
    ) -> None:
        self._service = service
        self._pool = pool
        self._distributions = distributions_of(manifest.get("outputs"))
        self._tell = tell
        self._waiting: deque[bytes] = deque()
        self._work: asyncio.Task[None] | None = None

    def take(self, message: bytes) -> None:
        """Queue a copy; the master bounds how many there are."""
        self._waiting.append(message)
        if self._work is None:
            self._work = asyncio.ensure_future(self._run())

    async def _run(self) -> None:
        while self._waiting:
            message = self._waiting.popleft()
            try:
                found = await asyncio.get_running_loop().run_in_executor(
                    self._pool, self._outcome, message
                )
            except Exception:  # a fault of ours must not end the others
                traceback.print_exc()
                found = _only("failed", "the comparison failed; see the server's log")
            self._tell(channel.SHADOW_DONE, orjson.dumps(found))
        self._work = None

    def _outcome(self, message: bytes) -> dict[str, Any]:
        """Run a copy and compare; in a thread."""
        copy, schema = Copy.unpacked(message), self._service.schema
        try:
            inference = schema.read(copy.body, copy.header_length)
        except RequestError as error:
            return _only("refused", error.message)
        began = time.perf_counter()
        try:
            results = self._service.run(inference)
        except RequestError as error:
            return _only("failed", error.message)
        seconds = time.perf_counter() - began
        buckets = [0] * (len(BOUNDS) + 1)
        buckets[bisect_left(BOUNDS, seconds)] = 1
        ran = {"run": buckets, "run_seconds": seconds}
        names = inference.outputs or schema.output_names
        try:
            answered = decode(schema, inference, copy.answer, copy.answer_length)
            found = compare(
                names, [np.asarray(each) for each in answered],
                [np.asarray(each) for each in results],
                rows=inference.rows, distributions=self._distributions,
            )  # fmt: skip
        except (AnswerError, ValueError) as error:
            return _only("unlike", str(error)) | ran
        return ran | {
            "requests": {"compared": 1},
            "rows": found.rows,
            "agreed": found.agreed,
            "output_rows": dict.fromkeys(names, found.rows),
            "output_agreed": found.outputs,
            "output_difference": found.differences,
        }


def _only(outcome: str, why: str) -> dict[str, Any]:
    return {"requests": {outcome: 1}, "why": why[:_LONGEST]}
