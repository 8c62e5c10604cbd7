"""What the server tells a worker: the model's form, how to prepare rows, how to train."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.plan import Learned
from falaj.workloads.parameter_server.frames import Coding
from falaj.workloads.training.options import Parameters

FORMAT = "falaj.parameter-server/1"


@dataclass(frozen=True, kw_only=True)
class Assignment(Learned):
    """The same for all workers, but for ``part``.

    Attributes:
        parameters: of the training; device, precision and threads are each worker's own.
        mode: ``asynchronous``: an update is a batch's gradient; ``local``: what steps changed.
        local_steps: batches of an update: 1, or the steps of ``local``.
        rows: ``shared``: a part of the server's dataset; ``own``: the worker's own.
        dataset: digest of the server's dataset.
        part: which part of shared rows is this worker's, from 0.
        parts: how many parts there are.
        compression: what updates travel as, as `Coding.kind`.
        top: share of the numbers that travels, of ``top``.
        weights: what the model travels as.
    """

    parameters: Parameters
    mode: str
    local_steps: int
    rows: str
    dataset: str
    part: int
    parts: int
    compression: str
    top: float
    weights: str

    @property
    def updates(self) -> Coding:
        """What updates travel as."""
        return Coding(self.compression, self.top)

    @property
    def answers(self) -> Coding:
        """What the model travels as."""
        return Coding(self.weights)

    def of_part(self, part: int) -> Assignment:
        """The same for another worker."""
        return replace(self, part=part)

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps({**asdict(self), "format": FORMAT, **self.to_json()}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Assignment:
        """What `to_bytes` wrote.

        Raises:
            WorkloadError: it isn't that.
        """
        try:
            value: dict[str, Any] = json.loads(data)
            if value.pop("format") != FORMAT:
                raise WorkloadError(f"the server speaks something else than {FORMAT}")
            value["parameters"] = Parameters(**value["parameters"])
            return cls(**{**value, **cls.arguments(value)})
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise WorkloadError(f"the server's assignment can't be read: {error}") from error
