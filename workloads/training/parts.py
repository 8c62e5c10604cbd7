"""Checkpoints in parts: each process writes what it holds, and any number of them reads it.

``checkpoint`` says which parts there are and where in the whole tensors their pieces lie; it is
written when all parts are. Parts are written while training goes on.
"""

from __future__ import annotations

import json
import operator
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint
from falaj.workloads.training import record as records
from falaj.workloads.training.distributed import Team

MODULE, AVERAGE, BEST, OPTIMISER = "module", "average", "best", "optimiser"
"""What of a run a tensor is: the first word of its name in a checkpoint."""
PARTS: Final = "parts"
"""Of a checkpoint's plain values: what is said of its parts."""


@dataclass(frozen=True)
class Place:
    """Where a piece lies in the whole tensor.

    Attributes:
        offsets: of its first number, along each side.
        sizes: along each side.
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of_all(cls, shape: tuple[int, ...]) -> Place:
        """Return that of a whole tensor."""
        return cls((0,) * len(shape), shape)

    @property
    def ends(self) -> tuple[int, ...]:
        """Return where it ends, along each side."""
        return tuple(map(operator.add, self.offsets, self.sizes))

    @property
    def slices(self) -> tuple[slice, ...]:
        """Return what takes it out of the whole tensor."""
        return tuple(map(slice, self.offsets, self.ends))

    def overlap(self, other: Place) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
        """Return where what both have lies in this piece and in the other; None: nowhere."""
        own: list[slice] = []
        others: list[slice] = []
        for start, size, start_2, size_2 in zip(
            self.offsets, self.sizes, other.offsets, other.sizes, strict=True
        ):
            low, high = max(start, start_2), min(start + size, start_2 + size_2)
            if low >= high:
                return None
            own.append(slice(low - start, high - start))
            others.append(slice(low - start_2, high - start_2))
        return tuple(own), tuple(others)


def named(of: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return ``tensors`` under names that say what of a run they are."""
    return {f"{of}/{name}": each for name, each in tensors.items()}


class Writer:
    """Writes a checkpoint's parts beside the training, and then what is said of them.

    All processes of a team make one and call its methods, whether they have a part or not.

    Args:
        output: the run's folder, which all machines share.
        keyring: seals the files; None leaves them plain.
        identity: names the run.
        team: its processes.
    """

    def __init__(self, output: Path, keyring: KeyRing | None, identity: str, team: Team) -> None:
        self._output, self._keyring, self._identity, self._team = output, keyring, identity, team
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._state: dict[str, Any] = {}
        self._token = ""

    @property
    def is_begun(self) -> bool:
        """Whether a checkpoint was begun that isn't finished; the same in all processes."""
        return self._thread is not None

    @property
    def is_writing(self) -> bool:
        """Whether this process's part isn't written yet."""
        return self._thread is not None and self._thread.is_alive()

    def begin(
        self, pieces: dict[str, Tensor] | None, places: Mapping[str, Place],
        common: dict[str, Any], moment: dict[str, Any],
    ) -> None:  # fmt: skip
        """Begin a checkpoint; the one before is finished.

        Args:
            pieces: this process's, on the CPU and nobody else's; None: another has the same.
            places: where they lie.
            common: the optimiser's plain values; the leader's count.
            moment: what else a checkpoint holds; the leader's counts.
        """
        token = self._team.share(secrets.token_hex(8).encode()) or b""
        lies = {name: [each.offsets, each.sizes] for name, each in places.items()}
        index = self._team.collect(json.dumps(lies if pieces is not None else None).encode())
        parts: dict[str, Any] = {
            "token": token.decode(), "index": [each.decode() for each in index],
        }  # fmt: skip
        self._state = {"optimisation": {**common, PARTS: parts}, **moment}
        self._token = parts["token"]
        self._thread = threading.Thread(target=self._write, args=(pieces, self._token))
        self._thread.start()

    def _write(self, pieces: dict[str, Tensor] | None, token: str) -> None:
        if pieces is None:
            return
        try:
            name = records.part_name(token, self._team.rank)
            checkpoint.save(
                self._output / name, {"pieces": pieces}, self._keyring,
                records.context_of(self._identity, name),
            )  # fmt: skip
        except BaseException as error:  # it is raised where the training is
            self._error = error

    def finish(self) -> None:
        """Wait for the parts; then the checkpoint is this one.

        Raises:
            StorageFullError: no space; the checkpoint before is still there.
        """
        if self._thread is None:
            return
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        self._team.wait()
        if self._team.leads:
            context = records.context_of(self._identity, records.CHECKPOINT)
            path = self._output / records.CHECKPOINT
            checkpoint.save(path, self._state, self._keyring, context)
            records.remove_parts(self._output, but=self._token)


class Source:
    """Whole tensors of a checkpoint, read in pieces."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.shapes = shapes
        """Of the tensors by name."""

    def read(self, wanted: Mapping[str, Place | None]) -> dict[str, Tensor]:
        """Return pieces of tensors by name; for None all of one.

        Raises:
            WorkloadError: a file that one is in is missing, damaged or sealed with other keys.
        """
        raise NotImplementedError


class Parts(Source):
    """A checkpoint in parts.

    Args:
        output: the run's folder.
        keyring: as `Writer`.
        identity: as `Writer`.
        said: what the checkpoint says of its parts.
        rank: whose part is looked into first.
    """

    def __init__(
        self, output: Path, keyring: KeyRing | None, identity: str, said: Mapping[str, Any],
        rank: int,
    ) -> None:  # fmt: skip
        self._output, self._keyring, self._identity = output, keyring, identity
        self._token = str(said["token"])
        self._places: dict[str, dict[int, Place]] = {}
        parts = [json.loads(each) for each in said["index"]]
        count = len(parts)
        for part in sorted(range(count), key=lambda each: (each - rank) % count):
            for name, (offsets, sizes) in mapping(parts[part]).items():
                self._places.setdefault(name, {})[part] = Place(tuple(offsets), tuple(sizes))
        super().__init__({
            name: tuple(map(max, zip(*(each.ends for each in found.values()), strict=True)))
            for name, found in self._places.items()
        })  # fmt: skip

    def read(self, wanted: Mapping[str, Place | None]) -> dict[str, Tensor]:
        """Return pieces, as `Source.read`, put together of those that processes wrote."""
        places = {name: each or Place.of_all(self.shapes[name]) for name, each in wanted.items()}
        sources: dict[int, list[str]] = {}
        for name, place in places.items():
            for part in self._parts_with(name, place):
                sources.setdefault(part, []).append(name)
        found: dict[str, Tensor] = {}
        # One part after another: all of them may be more than a machine's memory.
        for part, names in sources.items():
            pieces = self._part(part)
            for name in names:
                place, piece = places[name], pieces[name]
                if name not in found:
                    found[name] = piece.new_zeros(place.sizes)
                into, out = place.overlap(self._places[name][part]) or ((), ())
                found[name][into] = piece[out]
        for name in places.keys() - found.keys():
            found[name] = torch.zeros(places[name].sizes)  # of no size
        return found

    def _parts_with(self, name: str, place: Place) -> list[int]:
        """The parts that a piece is put together of: the first that has all of it, else more."""
        pieces = self._places[name]
        for part, each in pieces.items():
            if place == each:
                return [part]
        return [part for part, each in pieces.items() if place.overlap(each) is not None]

    def _part(self, part: int) -> dict[str, Tensor]:
        name = records.part_name(self._token, part)
        context = records.context_of(self._identity, name)
        return checkpoint.load(self._output / name, self._keyring, context)["pieces"]


class Whole(Source):
    """A checkpoint of processes that each have the whole model."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._tensors: dict[str, Tensor] = {}
        for of in (MODULE, AVERAGE, BEST):
            self._tensors |= named(of, state[of])
        names = state.get("optimised")
        if names is None:
            raise WorkloadError(
                "the checkpoint was written by an earlier version, and can't be divided"
            )
        for index, values in state[OPTIMISER]["state"].items():
            self._tensors |= {
                f"{OPTIMISER}/{names[index]}/{key}": each
                for key, each in values.items()
                if isinstance(each, Tensor)
            }
        super().__init__({name: tuple(each.shape) for name, each in self._tensors.items()})

    def read(self, wanted: Mapping[str, Place | None]) -> dict[str, Tensor]:
        """Return pieces, as `Source.read`."""
        return {
            name: self._tensors[name] if place is None else self._tensors[name][place.slices]
            for name, place in wanted.items()
        }


def common_of_whole(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values that `DividedOptimisation` goes on with, of a whole checkpoint."""
    return {"groups": without_parameters(state[OPTIMISER]["param_groups"]),
            "scheduler": state["scheduler"]}  # fmt: skip


def whole_of_parts(
    source: Source, common: Mapping[str, Any], optimised: list[str]
) -> dict[str, Any]:
    """Return the state that `Optimisation` goes on with, of a checkpoint in parts.

    Args:
        source: the parts.
        common: the checkpoint's plain values.
        optimised: parameters in the order in which the optimiser counts them.
    """
    found: dict[str, Any] = {MODULE: {}, AVERAGE: {}, BEST: {}}
    states: dict[int, dict[str, Tensor]] = {}
    for name, tensor in source.read(dict.fromkeys(source.shapes)).items():
        of, _, rest = name.partition("/")
        if of == OPTIMISER:
            parameter, _, key = rest.rpartition("/")
            states.setdefault(optimised.index(parameter), {})[key] = tensor
        else:
            found[of][rest] = tensor
    groups: list[dict[str, Any]] = []
    for group, names in zip(common["groups"], common["names"], strict=True):
        groups.append({**group, "params": [optimised.index(each) for each in names]})
    return found | {
        OPTIMISER: {"state": states, "param_groups": groups}, "scheduler": common["scheduler"],
    }  # fmt: skip


def without_parameters(groups: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an optimiser's groups without what they are of."""
    return [{k: v for k, v in group.items() if k != "params"} for group in groups]
