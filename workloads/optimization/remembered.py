"""A language model's graph as service asks it: part by part, with keys and values of before.

What is served has to say the same so as of whole rows, in each precision and engine that it may
run in. What costs time there is one more token of a window that is all but full.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from falaj.workloads.engines import Session
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import is_within, shown
from falaj.workloads.remembering import (
    ASKED,
    CHUNK,
    FILLED,
    LOGITS,
    layers_of,
    past_names,
    present_of,
)
from falaj.workloads.training.language import TOKENS, counted, following
from falaj.workloads.training.loop import row_losses, windows_at_once
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.training.tensors import tensor_of
from falaj.workloads.vocabulary import MOST_CHARACTERS

MOST_WINDOWS: Final = 16
"""That are followed so."""
_SAME: Final = 1e-3
"""Nats, and share of them, that sums in another order may make."""
_KEPT: Final = 4_096
"""Tokens of all windows that are kept at once, or those of one."""
_SINGLE: Final = 16
"""Tokens at a window's end that are run one by one."""


@dataclass(frozen=True)
class Past:
    """What a graph is told of the tokens before.

    Attributes:
        sizes: heads and numbers of a head, by input.
    """

    sizes: dict[str, tuple[int, int]]

    def slots(self, rows: int, count: int) -> dict[str, NDArray[np.float32]]:
        """Return room for so many tokens of so many rows, of which none is filled."""
        return {
            name: np.zeros((rows, heads, count, size), dtype=np.float32)
            for name, (heads, size) in self.sizes.items()
        }


def past_of(served: onnx.ModelProto) -> Past:
    """Return what a served graph of a language model is told."""
    given = {each.name for each in served.graph.input}
    defaults = {
        each.name: numpy_helper.to_array(each).shape
        for each in served.graph.initializer
        if each.name in given
    }
    names = past_names(layers_of(list(defaults)))
    return Past({name: (defaults[name][1], defaults[name][3]) for name in names})


def step_of(session: Session, past: Past, tokens: NDArray[Any]) -> Callable[[], object]:
    """Return what runs the last token of a window (1, S) as service does: S - 1 are kept.

    Args:
        session: of the served graph.
        past: of it.
        tokens: the window.
    """
    filled = tokens.shape[1] - 1
    feed = {
        TOKENS: tokens[:, -1:], FILLED: np.array([filled]), **past.slots(1, max(filled, 1))
    }  # fmt: skip
    outputs = ["probabilities", *map(present_of, past.sizes)]
    return lambda: session.run(outputs, feed)


def nats_of(
    session: Session,
    past: Past,
    tokens: NDArray[Any],
    labels: NDArray[Any],
    size: int = MOST_CHARACTERS,
) -> NDArray[np.float64]:
    """Return the mean cross-entropy of each window's tokens, in nats, (N,).

    Args:
        session: of the served graph.
        past: of it.
        tokens: windows (N, S).
        labels: the token that follows each, (N,).
        size: tokens of the vocabulary, as of `window_nats`.
    """
    length = tokens.shape[1]
    at_once = max(1, min(_KEPT // length, windows_at_once(min(length, CHUNK), size)))
    parts = [
        _nats_of(session, past, tokens[start : start + at_once], labels[start : start + at_once])
        for start in range(0, len(tokens), at_once)
    ]
    return np.concatenate(parts)


def _nats_of(
    session: Session, past: Past, tokens: NDArray[Any], labels: NDArray[Any]
) -> NDArray[np.float64]:
    rows, length = tokens.shape
    targets = tensor_of(following(tokens, labels))
    slots = past.slots(rows, length)
    single = max(1, length - _SINGLE)
    starts = [*range(0, single, CHUNK), *range(single, length)]
    total, count = np.zeros(rows), counted(targets).numpy()
    for start, end in zip(starts, [*starts[1:], length], strict=True):
        feed = {
            TOKENS: tokens[:, start:end], ASKED: np.arange(end - start),
            FILLED: np.array([start]), **slots,
        }  # fmt: skip
        logits, *given = session.run([LOGITS, *map(present_of, slots)], feed)
        for name, values in zip(slots, given, strict=True):
            slots[name][:, :, start:end] = values
        losses = row_losses(tensor_of(np.asarray(logits)), targets[:, start:end], LANGUAGE,
                            0.0)  # fmt: skip
        total += losses.numpy() * counted(targets[:, start:end]).numpy()
    return total / count


def check_remembered(
    session: Session,
    past: Past,
    tokens: NDArray[Any],
    labels: NDArray[Any],
    *,
    whole: NDArray[np.float64],
    size: int = MOST_CHARACTERS,
    tokens_a_character: float = 1.0,
    bound_points: float | None = None,
) -> None:
    """Refuse a graph that says something else of windows part by part than the float one of all.

    Args:
        session: of the served graph.
        past: of it.
        tokens: windows (N, S), of which `MOST_WINDOWS` are run.
        labels: the token that follows each, (N,).
        whole: nats of a character of each by the float model over whole windows, (N,).
        size: tokens of the vocabulary, as of `window_nats`.
        tokens_a_character: nats of a token times it are those of a character.
        bound_points: per cent that they may be worse together. Default: each is to be the same.

    Raises:
        WorkloadError: it does, or fails.
    """
    some = np.linspace(0, len(tokens) - 1, min(MOST_WINDOWS, len(tokens))).astype(int)
    before = whole[some]
    try:
        found = nats_of(session, past, tokens[some], labels[some], size) * tokens_a_character
    except Exception as error:  # runtimes raise a dozen unrelated classes
        raise WorkloadError(
            f"it fails where it is told keys and values of the past: {error}"[:300]
        ) from error
    metric = "nats_per_character"
    if bound_points is None:
        fits = bool(np.allclose(found, before, rtol=_SAME, atol=_SAME))
    else:
        fits = is_within(metric, float(before.mean()), float(found.mean()), bound_points)
    if not fits:
        raise WorkloadError(
            f"told keys and values of the past the {metric} would be "
            f"{shown(metric, float(found.mean()))}, of the float model over whole windows "
            f"{shown(metric, float(before.mean()))}"
        )
