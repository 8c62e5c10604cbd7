"""A graph in OpenVINO, on the CPU.

Importing OpenVINO would report the machine abroad; `falaj.workloads` sees to it that it can't.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import openvino
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError

Array = NDArray[Any]

_STOP_MS: Final = 20
"""How often a run that may be told to stop looks whether it was."""

_CORE: Final = openvino.Core()
"""One for the process, until its end: with its first model a core gives the thread another stack
for signals, and with its end it gives back the one from before, which another core may have taken
away. Then the next signal would end the process."""

VERSION: Final = str(openvino.__version__).partition("-")[0]


def computes_bfloat16() -> bool:
    """Tell whether this processor has instructions for bfloat16."""
    return "BF16" in _CORE.get_property("CPU", "OPTIMIZATION_CAPABILITIES")


class StoppedError(Exception):
    """A run was told to stop."""


class OpenVinoSession:
    """A compiled graph, which any thread may run, with as much of ONNX Runtime's interface as is
    used here."""

    def __init__(
        self,
        model: bytes,
        *,
        inputs: Sequence[str],
        outputs: Sequence[str],
        texts: Mapping[str, Array],
        defaults: Mapping[str, Array],
        precision: str,
        threads: int,
        streams: int,
    ) -> None:
        """Compile a graph.

        Args:
            model: an ONNX model that was checked.
            inputs: the graph's, in its order.
            outputs: likewise.
            texts: of outputs that are numbers of texts, the texts; the last one stands for all
                numbers that none has.
            defaults: of inputs that need not be given.
            precision: ``f32`` or ``bf16``, of what isn't quantised.
            threads: that one run may take.
            streams: runs at once.

        Raises:
            WorkloadError: OpenVINO can't compile it.
        """
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": precision,
            "INFERENCE_NUM_THREADS": threads * streams,
            "NUM_STREAMS": streams,
            # Processes beside each other would all be pinned to the first cores.
            "ENABLE_CPU_PINNING": False,
        }
        try:
            # Its types leave open what a model is read from.
            read = cast("Any", _CORE).read_model(model)
            self._compiled = _CORE.compile_model(read, "CPU", settings)
            self._inputs = [
                (place, name, *_form(port))
                for place, (name, port) in enumerate(
                    zip(inputs, self._compiled.inputs, strict=True)
                )
            ]
        except Exception as error:  # all that goes wrong in it is a RuntimeError
            raise WorkloadError(f"OpenVINO can't load the model: {_first(error)}") from error
        self._outputs = {name: place for place, name in enumerate(outputs)}
        self._texts = texts
        self._defaults = defaults
        self._idle: deque[Any] = deque()
        """Requests that nobody uses: each has memory of its own for one run."""

    def run(
        self, names: Sequence[str] | None, feed: Mapping[str, Array], options: Any = None
    ) -> list[Array]:
        """Return the outputs ``names`` (None: all) for ``feed``, in arrays of the caller's own.

        Args:
            names: of outputs.
            feed: arrays by input, which are copied: OpenVINO would write others' rows into
                them.
            options: ONNX Runtime's; its ``terminate`` ends a run that is under way.

        Raises:
            StoppedError: it was ended.
            ValueError: an input has another shape or type; OpenVINO would compute with what lies
                beside it in memory.
            RuntimeError: the graph fails on this input.
        """
        given = {
            place: _checked(
                feed[name] if name in feed else self._defaults[name], name, dtype, shape
            )
            for place, name, dtype, shape in self._inputs
        }
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._compiled.create_infer_request()
        if options is None:
            request.infer(given, share_inputs=False, share_outputs=True)
        else:
            _stoppable(request, given, options)
        answers = [self._answer(request, name) for name in names or self._outputs]
        # One that failed isn't used again.
        self._idle.append(request)
        return answers

    def _answer(self, request: Any, name: str) -> Array:
        values = request.get_output_tensor(self._outputs[name]).data
        texts = self._texts.get(name)
        if texts is None:
            return np.array(values)
        unknown = len(texts) - 1
        return texts[np.where((values >= 0) & (values < unknown), values, unknown)]


def _form(port: Any) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """An input's type and sizes, -1 where one is free."""
    shape = port.partial_shape
    sizes = (size.get_length() if size.is_static else -1 for size in shape)
    return np.dtype(port.element_type.to_dtype()), tuple(sizes)


def _checked(values: Array, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    fits = len(values.shape) == len(shape) and all(
        size in (-1, given) for size, given in zip(shape, values.shape, strict=True)
    )
    if not fits or values.dtype != dtype:
        raise ValueError(f"{name} is {values.dtype} {values.shape}; wanted is {dtype} {shape}")
    return values


def _stoppable(request: Any, given: Mapping[int, Array], options: Any) -> None:
    if options.terminate:
        raise StoppedError("the run was told to stop before it began")
    request.start_async(given, share_inputs=False)
    while not request.wait_for(_STOP_MS):
        if options.terminate:
            request.cancel()
            # Waits for its end, and reports that it was cancelled.
            with contextlib.suppress(RuntimeError):
                request.wait()
            raise StoppedError("the run was told to stop")
    # Raises what went wrong.
    request.wait()


def _first(error: BaseException) -> str:
    """What OpenVINO says, without the places in its source that come first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (reasons or lines or [type(error).__name__])[0][:300]
