"""What crosses between server and workers: numbers of the model's tensors, and nothing else.

A frame's layout::

    magic (8) | length of the header (4, big endian) | SHA-256 of the rest (32) | header | numbers

The header is JSON of a few fields, all of which are checked. Names and shapes of tensors don't
travel: both sides know the model, the header has their digest, and so the length of the numbers is
known before they are looked at. No code and no object travels, and no length is taken on trust.

Numbers are little endian, tensor by tensor: float32, float16 or bfloat16; or of each learned
tensor the ``top`` share of largest magnitude, as places (uint32, ascending) and values (bfloat16).
What is counted and not learned, as a batch normalisation's means, always travels as float32.

What a coding leaves out isn't lost: the worker adds it to its next update (error feedback: Stich,
Cordonnier, Jaggi, "Sparsified SGD with Memory", arXiv:1809.07599; Karimireddy et al.,
arXiv:1901.09847).
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from string import hexdigits
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm  # pyright: ignore[reportPrivateUsage]

from falaj.workloads.documents import is_dictionary, parse_json
from falaj.workloads.federation.updates import MessageError
from falaj.workloads.training.snapshot import digest
from falaj.workloads.training.tensors import modules_of, tensor_of

_MAGIC: Final = b"FALAJPS1"
_FRONT: Final = struct.Struct(">8sI32s")
_MOST_HEADER_BYTES: Final = 1_024
_MOST_COUNT: Final = 2**53
_NAME_LENGTH: Final = 32
_LARGEST_FLOAT16: Final = 65504.0
_LARGEST_LOSS: Final = 1e300

WEIGHTS: Final = "weights"
UPDATE: Final = "update"
_FIELDS: Final[Mapping[str, Mapping[str, type]]] = {
    WEIGHTS: {"version": int, "life": str, "done": int, "total": int},
    UPDATE: {"base": int, "life": str, "id": str, "batches": int, "rows": int, "loss": float},
}
"""Of each kind of frame: fields of its header. Texts are 32 hexadecimal digits, whole numbers are
not negative; a loss that is no number is null."""


class NotFiniteError(MessageError):
    """A tensor of a frame holds infinity or what is no number.

    Args:
        name: of the tensor.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} holds what is no finite number")
        self.name = name


@dataclass(frozen=True)
class Entry:
    """One tensor of the model.

    Attributes:
        name: in the model's state.
        shape: of the tensor.
        learned: whether it is a parameter; else it is counted, as a mean of what went through.
        keeps: of what is counted, the share that a batch leaves of what was before: 0.99 of a
            batch normalisation whose momentum is 0.01. 0: nothing is known, the newest holds.
    """

    name: str
    shape: tuple[int, ...]
    learned: bool
    keeps: float = 0.0

    @property
    def numbers(self) -> int:
        """How many it has."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class Layout:
    """The model's floating-point tensors, in the order in which they travel."""

    entries: tuple[Entry, ...]

    @classmethod
    def of(cls, module: nn.Module) -> Layout:
        """The layout of a model. Whole numbers, such as counts of batches, don't travel."""
        learned = {name for name, _ in module.named_parameters()}
        keeps = {
            f"{name}.{counted}" if name else counted: 1 - each.momentum
            for name, each in modules_of(module)
            if isinstance(each, _BatchNorm) and each.momentum is not None
            for counted in ("running_mean", "running_var")
        }
        return cls(
            tuple(
                Entry(name, tuple(tensor.shape), name in learned, keeps.get(name, 0.0))
                for name, tensor in module.state_dict().items()
                if tensor.is_floating_point()
            )
        )

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of names and shapes."""
        return digest([[each.name, list(each.shape), each.learned] for each in self.entries])


@dataclass(frozen=True)
class Coding:
    """What numbers travel as.

    Attributes:
        kind: ``none`` or ``float32``, ``float16``, ``bfloat16`` or ``top``.
        top: share of a learned tensor's numbers that travels, of ``top``.
    """

    kind: str = "none"
    top: float = 1.0

    @property
    def is_lossy(self) -> bool:
        """Whether something is left out."""
        return self.kind not in ("none", "float32")

    def chosen(self, entry: Entry) -> int:
        """How many numbers of a learned tensor travel by ``top``: at least one."""
        return min(entry.numbers, max(1, math.ceil(self.top * entry.numbers)))

    def length(self, entry: Entry) -> int:
        """Bytes that a tensor's numbers have."""
        if not entry.learned or not self.is_lossy:
            return 4 * entry.numbers
        return 6 * self.chosen(entry) if self.kind == "top" else 2 * entry.numbers


def largest(layout: Layout, coding: Coding) -> int:
    """The most bytes that a frame can have."""
    return _FRONT.size + _MOST_HEADER_BYTES + sum(coding.length(each) for each in layout.entries)


def encode(
    kind: str, fields: Mapping[str, Any], tensors: Mapping[str, Tensor],
    layout: Layout, coding: Coding,
) -> bytes:  # fmt: skip
    """A frame of these fields and tensors; see the module's text.

    Args:
        kind: `WEIGHTS` or `UPDATE`.
        fields: of the header.
        tensors: by name, of the layout's shapes.
        layout: of the model.
        coding: what numbers travel as.
    """
    header = json.dumps({"kind": kind, "layout": layout.digest, **fields}, allow_nan=False)
    rest = header.encode() + b"".join(
        _packed(tensors[each.name], each, coding) for each in layout.entries
    )
    return _FRONT.pack(_MAGIC, len(header), hashlib.sha256(rest).digest()) + rest


def decode(
    data: bytes, kind: str, layout: Layout, coding: Coding
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What `encode` was given: fields, and float32 tensors by name.

    Raises:
        NotFiniteError: a tensor holds infinity or what is no number.
        MessageError: it is damaged, too long or short, of another kind, model or coding, or holds
            a field that can't be.
    """
    if len(data) > largest(layout, coding):
        raise MessageError(
            f"the message has {len(data):,} bytes: at most {largest(layout, coding):,}"
        )
    if len(data) < _FRONT.size:
        raise MessageError("the message is cut short")
    magic, length, shown = _FRONT.unpack_from(data)
    rest = memoryview(data)[_FRONT.size :]
    if magic != _MAGIC or length > min(_MOST_HEADER_BYTES, len(rest)):
        raise MessageError("the message is none of a parameter server's")
    if not hmac.compare_digest(hashlib.sha256(rest).digest(), shown):
        raise MessageError("the message was damaged on its way: its digest is another")
    fields = _fields(bytes(rest[:length]), kind, layout)
    numbers = rest[length:]
    if len(numbers) != sum(coding.length(each) for each in layout.entries):
        raise MessageError("the message has more or fewer numbers than the model")
    tensors: dict[str, Tensor] = {}
    start = 0
    for each in layout.entries:
        end = start + coding.length(each)
        found = _unpacked(numbers[start:end], each, coding)
        if not bool(torch.isfinite(found).all()):
            raise NotFiniteError(each.name)
        tensors[each.name], start = found, end
    return fields, tensors


def norm(tensors: Mapping[str, Tensor], layout: Layout) -> tuple[float, str]:
    """The L2 norm of what is learned, and the tensor that has most of it."""
    squares = {
        each.name: float(tensors[each.name].double().square().sum())
        for each in layout.entries
        if each.learned
    }
    return math.sqrt(sum(squares.values())), max(squares, key=squares.__getitem__)


class Feedback:
    """Codes a worker's updates, and keeps what that leaves out for the next one.

    Args:
        layout: of the model.
        coding: what updates travel as.
    """

    def __init__(self, layout: Layout, coding: Coding) -> None:
        self._layout, self._coding = layout, coding
        self._kept: dict[str, Tensor] = {}
        self._next: dict[str, Tensor] = {}

    @property
    def kept(self) -> Mapping[str, Tensor]:
        """What earlier updates left out, by name; empty before the first."""
        return self._kept

    def encode(self, fields: Mapping[str, Any], update: Mapping[str, Tensor]) -> bytes:
        """The frame of an update and of what is kept; `taken` tells that it arrived."""
        if not self._coding.is_lossy:
            return encode(UPDATE, fields, update, self._layout, self._coding)
        whole = {name: each + self._kept.get(name, 0) for name, each in update.items()}
        self._next = {
            entry.name: whole[entry.name]
            - _unpacked(
                memoryview(_packed(whole[entry.name], entry, self._coding)), entry, self._coding
            )
            for entry in self._layout.entries
            if entry.learned
        }
        return encode(UPDATE, fields, whole, self._layout, self._coding)

    def taken(self) -> None:
        """The last update was taken: what it left out is kept."""
        self._kept = self._next

    def forget(self) -> None:
        """Keep nothing: what was kept is refused."""
        self._kept = {}


def _packed(tensor: Tensor, entry: Entry, coding: Coding) -> bytes:
    flat = tensor.detach().cpu().float().reshape(-1)
    if not entry.learned or not coding.is_lossy:
        return flat.numpy().astype("<f4").tobytes()
    if coding.kind == "float16":
        # More than float16 holds would be infinite: the rest is fed back.
        return (
            flat.clamp(-_LARGEST_FLOAT16, _LARGEST_FLOAT16).half().numpy().astype("<f2").tobytes()
        )
    if coding.kind == "bfloat16":
        return _halves(flat)
    places = torch.topk(flat.abs(), coding.chosen(entry), sorted=False).indices.sort().values
    return places.numpy().astype("<u4").tobytes() + _halves(flat[places])


def _unpacked(data: memoryview, entry: Entry, coding: Coding) -> Tensor:
    if not entry.learned or not coding.is_lossy:
        found = tensor_of(np.frombuffer(data, "<f4").astype(np.float32))
    elif coding.kind == "float16":
        found = tensor_of(np.frombuffer(data, "<f2").astype(np.float32))
    elif coding.kind == "bfloat16":
        found = _whole(data)
    else:
        count = coding.chosen(entry)
        places = np.frombuffer(data[: 4 * count], "<u4").astype(np.int64)
        if (len(places) > 1 and not bool((np.diff(places) > 0).all())) or (
            count and places[-1] >= entry.numbers
        ):
            raise MessageError(f"{entry.name} has numbers at places that can't be")
        found = torch.zeros(entry.numbers)
        found[tensor_of(places)] = _whole(data[4 * count :])
    return found.reshape(entry.shape)


def _halves(flat: Tensor) -> bytes:
    return flat.bfloat16().view(torch.int16).numpy().astype("<i2").tobytes()


def _whole(data: memoryview) -> Tensor:
    halves = tensor_of(np.frombuffer(data, "<i2").astype(np.int16))
    return halves.view(torch.bfloat16).float()


def _fields(header: bytes, kind: str, layout: Layout) -> dict[str, Any]:
    wanted = _FIELDS[kind]
    try:
        value = parse_json(header)
    except (ValueError, RecursionError) as error:
        raise MessageError(f"the message's header can't be read: {error}") from error
    if not is_dictionary(value) or set(value) != {"kind", "layout", *wanted}:
        raise MessageError(f"the message's header isn't that of {kind}")
    if value.pop("kind") != kind or value.pop("layout") != layout.digest:
        raise MessageError("the message is of another kind, or of another model")
    for name, of in wanted.items():
        if not _can_be(value[name], of):
            raise MessageError(f"the message's {name} can't be")
    return value


def _can_be(value: object, of: type) -> bool:
    if of is str:
        return (
            isinstance(value, str) and len(value) == _NAME_LENGTH and set(value) <= set(hexdigits)
        )
    if of is float:
        return value is None or (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and -_LARGEST_LOSS < value < _LARGEST_LOSS
        )
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_COUNT
