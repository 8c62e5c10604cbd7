"""What a language model has computed of the tokens before the next one: keys and values.

They are kept from step to step in slots, which double as a text grows, so that an engine meets few
sizes and what is there needs no copy. A text is looked back on in windows, see `since`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.inference.errors import InferenceError, RequestError, retry_after
from falaj.workloads.remembering import FILLED, PAST_DIMENSIONS, layers_of, past_names, present_of

_NUMBER_BYTES: Final = 4
_LEAST_SLOTS: Final = 32


def since(length: int, context: int) -> int:
    """Return the place of the first token that is looked back on.

    The window begins with the text. Where it is full, one begins anew with its later half, and
    grows again: so what follows is said by half of ``context`` and one token, or more, and up to
    all of it. It depends on nothing but how many tokens there are, so that a text that is
    sent again with what was generated is gone on from as if it had never ended.

    Args:
        length: of the text, in tokens.
        context: tokens of a window, at least 1.
    """
    step = context - context // 2
    return max(0, -(-(length - context) // step)) * step


class Described(Protocol):
    """An input of a graph: ONNX Runtime's and this toolkit's have as much."""

    @property
    def name(self) -> str:
        """Of it."""
        ...

    @property
    def shape(self) -> Sequence[Any]:
        """Whole numbers where a size is fixed."""
        ...


@dataclass(frozen=True)
class CacheForm:
    """What a model keeps of each token.

    Attributes:
        names: of the graph's inputs, keys and values by layer.
        heads: of each.
        size: numbers of a head.
        context: tokens of a window.
    """

    names: tuple[str, ...]
    heads: int
    size: int
    context: int

    def slots(self, length: int) -> int:
        """Return for how many tokens there is room where so many are kept."""
        doubled = 1 << (max(length, _LEAST_SLOTS) - 1).bit_length()
        return min(doubled, self.context)

    def bytes_of(self, length: int) -> int:
        """Return the bytes of a text that comes to so many tokens."""
        slots = self.slots(min(length, self.context))
        return len(self.names) * self.heads * slots * self.size * _NUMBER_BYTES


def form_of(optional: Sequence[Described], context: int) -> CacheForm | None:
    """Return what a graph keeps by its inputs with defaults; None: it can't be told the past.

    Raises:
        InferenceError: it takes a past of another form than is known here.
    """
    by_name = {each.name: each for each in optional}
    layers = layers_of(list(by_name))
    if not layers:
        return None
    names = past_names(layers)
    sizes: set[tuple[Any, ...]] = set()
    for name in names:
        shape = by_name[name].shape
        sizes.add((shape[1], shape[3]) if len(shape) == PAST_DIMENSIONS else ())
    heads, size = sizes.pop() or (0, 0)
    if sizes or not all(type(each) is int and each > 0 for each in (heads, size)):
        raise InferenceError(
            "the model takes keys and values of the past, but not in layers of one form"
        )
    return CacheForm(tuple(names), heads, size, context)


class Kept:
    """Keys and values of texts that are as long as each other.

    Args:
        form: the model's.
        rows: texts.
    """

    def __init__(self, form: CacheForm, rows: int) -> None:
        self.start = 0
        """Place in the texts of the first token that is kept."""
        self.filled = 0
        """Tokens that are kept."""
        self._form = form
        self._rows = rows
        self._slots: dict[str, NDArray[np.float32]] = {}

    @property
    def outputs(self) -> list[str]:
        """The graph's outputs that `add` takes."""
        return [present_of(name) for name in self._form.names]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(each.nbytes for each in self._slots.values())

    def feed(self) -> Mapping[str, NDArray[Any]]:
        """Return the inputs that tell a run the past."""
        if not self.filled:
            return {}
        return {FILLED: np.array([self.filled], dtype=np.int64), **self._slots}

    def add(self, given: Sequence[NDArray[Any]]) -> None:
        """Take what a run gave as `outputs`."""
        count = np.asarray(given[0]).shape[2]
        self._make_room(self.filled + count)
        for slots, more in zip(self._slots.values(), given, strict=True):
            slots[:, :, self.filled : self.filled + count] = more
        self.filled += count

    def begin(self, slots: dict[str, NDArray[np.float32]], filled: int) -> None:
        """Go on from keys and values of a text's first tokens, which then belong here."""
        self._slots, self.filled = slots, filled

    def give_up(self) -> dict[str, NDArray[np.float32]]:
        """Return the keys and values, and have none any more."""
        slots, self._slots, self.filled = self._slots, {}, 0
        return slots

    def restart(self, start: int) -> None:
        """Forget all, as the texts are looked back on from another place."""
        self.start, self.filled = start, 0

    def select(self, rows: Sequence[int]) -> None:
        """Keep some texts' alone; what others had is freed."""
        self._rows = len(rows)
        for name, slots in self._slots.items():
            self._slots[name] = slots[list(rows)]

    def _make_room(self, length: int) -> None:
        form = self._form
        wanted = form.slots(length)
        for name in form.names:
            before = self._slots.get(name)
            if before is not None and before.shape[2] >= wanted:
                continue
            # Zeros: what isn't filled is multiplied with shares of nothing, and mustn't be NaN.
            made = np.zeros((self._rows, form.heads, wanted, form.size), dtype=np.float32)
            if before is not None:
                made[:, :, : self.filled] = before[:, :, : self.filled]
            self._slots[name] = made


class Room:
    """Memory of a worker that texts' keys and values may take together.

    A text takes at its beginning what it may come to, so that none that has begun finds no room.

    Args:
        most: bytes.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def take(self, size: int) -> None:
        """Take so many bytes.

        Raises:
            RequestError: 503, they aren't there.
        """
        if self.taken + size > self.most:
            raise RequestError(
                503,
                "what is kept of the texts that are being generated may come to "
                f"{_mib(self.taken)} of {_mib(self.most)} MiB, and these texts to {_mib(size)} "
                "MiB; try again, or ask for fewer or shorter ones",
                headers=(retry_after(1),),
            )
        self.taken += size

    @property
    def left(self) -> int:
        """Bytes that no text has taken."""
        return self.most - self.taken

    def give_back(self, size: int) -> None:
        """Give so many back."""
        self.taken -= size


def _mib(size: int) -> str:
    return f"{size / 2**20:.3g}"
