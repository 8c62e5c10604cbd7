"""Making of a streamed dataset of a folder of pictures: made small once, and put into shards.

Which part a picture is in its own pixels decide, by a digest that the seed is mixed into: so the
same one is never both learned from and judged by, under whatever names it is there, and that is
done before anything is learned of them. Files are read in an order that the seed draws, so that a
shard has pictures of all classes. Of the pictures one is in memory at a time, beside a shard of
small ones.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.pictures import CLASS, IMAGE, fields_of
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import (
    picture_files,
    picture_folder,
    shard_set,
    snapshot,
)
from falaj.workloads.training.folder_files import digest_of_all
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.shard_set import Made
from falaj.workloads.training.shards import Stage
from falaj.workloads.training.snapshot import ShardRows

_ORDER: Final = 7  # stream of randomness below the seed, beside those of `shard_set` and training


@dataclass(frozen=True)
class Wanted:
    """What a streamed dataset of pictures is to be.

    Attributes:
        folder: with a folder for each class.
        seed: fixes what is held out, and what is validated with.
        holdout: share of the pictures that is held out at most.
    """

    folder: Path
    seed: int
    holdout: float

    def made_of(self) -> str:
        """Return the digest of files and wishes.

        Raises:
            WorkloadError: a file is no picture by its first bytes, or as
                `picture_folder.classes`.
        """
        return self.made_of_files(_survey(self).files)

    def made_of_files(self, files: list[dict[str, Any]]) -> str:
        """Return the same of files that were read before."""
        wishes = [
            self.seed, self.holdout, picture_files.SIDE, shard_set.LEAST_SHARD,
            shard_set.MOST_SHARD,
        ]  # fmt: skip
        named = shard_set.named(files)
        return snapshot.digest([snapshot.FORMAT, snapshot.STREAM, IMAGE, wishes, named])

    def make(self, stage: Path | None = None, keyring: KeyRing | None = None) -> Made:
        """Read the pictures; one is in memory at a time, and a shard of small ones.

        Args:
            stage: an empty folder that keeps the shards until they are written. Default: nothing
                is written, and pictures are read again when the shards are.
            keyring: that seals them there. Default: they are plain.

        Raises:
            StorageFullError: no space.
            WorkloadError: a file is no whole picture, or nothing can be learned from them.
        """
        return _make(self, stage, keyring)


@dataclass(frozen=True)
class _Survey:
    """What the files' first bytes say.

    Attributes:
        classes: their names, in order.
        names: of the pictures, from the folder on, class by class.
        labels: numbers of their classes, (pictures,).
        beginnings: of each file's SHA-256, (pictures,).
        side: pixels of the largest file's shorter side.
        is_grey: whether all are without colour by what they say.
        files: one digest of all, as a description has it.
    """

    classes: list[str]
    names: list[str]
    labels: NDArray[np.int64]
    beginnings: NDArray[np.uint64]
    side: int
    is_grey: bool
    files: list[dict[str, Any]]


def _survey(wanted: Wanted) -> _Survey:
    found = picture_folder.classes(wanted.folder)
    names = [name for each in found.values() for name in each]
    labels = np.repeat(np.arange(len(found)), [len(each) for each in found.values()])
    broken, beginnings = picture_files.Broken(), array("Q")
    side, is_grey = 0, True

    def named() -> Iterator[tuple[str, bytes]]:
        nonlocal side, is_grey
        for name in names:
            look = broken.attempt(name, _look, wanted.folder / name)
            digest, shorter, is_plain = look or (bytes(hashlib.sha256().digest_size), 0, True)
            side, is_grey = max(side, shorter), is_grey and is_plain
            beginnings.append(_beginning(digest))
            yield name, digest

    with warnings.catch_warnings():
        picture_files.take_warnings()
        every = digest_of_all(named())
    broken.refuse(len(names), wanted.folder)
    return _Survey(
        list(found), names, labels, np.asarray(beginnings, dtype=np.uint64), side, is_grey,
        [{"name": f"{len(names):,} pictures", "sha256": every}],
    )  # fmt: skip


def _look(path: Path) -> tuple[bytes, int, bool]:
    """The digest of a file, and what `picture_files.looked_at` says of it."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").digest()
        file.seek(0)
        return digest, *picture_files.looked_at(file)


def _beginning(digest: bytes) -> int:
    return int.from_bytes(digest[:8])


class _Plan:
    """What becomes of the pictures, once all is known of them.

    Args:
        wanted: what is to be made.
        survey: of the files.
    """

    def __init__(self, wanted: Wanted, survey: _Survey) -> None:
        self._wanted, self._survey = wanted, survey
        side = picture_files.require_side(survey.side, wanted.folder)
        self._side, count = side, len(survey.names)
        self._order = generator(wanted.seed, _ORDER).permutation(count)
        self._shape = (1 if self._is_grey() else 3, side, side)
        size = math.prod(self._shape)
        self._shares = shard_set.shares(count, wanted.holdout, size, 4 * size)
        self._twice = self._contrary = 0
        self.fields: dict[str, Any] = {
            "source": {"kind": "pictures", "name": wanted.folder.resolve().name},
            "target": CLASS,
            "classes": survey.classes,
            **fields_of(self._shape, picture_files.LARGEST),
        }

    def _is_grey(self) -> bool:
        """Whether no picture has a colour, whatever the files say: often the first has one."""
        if self._survey.is_grey:
            return True
        broken = picture_files.Broken()  # which are told of when all have been read
        return not any(picture_files.has_colour(image) for _, image in self._pictures(broken))

    def _pictures(self, broken: picture_files.Broken) -> Iterator[tuple[int, NDArray[np.uint8]]]:
        """Yield number and pixels (side, side, 3) of each picture, in the order drawn."""
        for number in map(int, self._order):
            image = broken.attempt(self._survey.names[number], self._picture, number)
            if image is not None:
                yield number, image

    def _picture(self, number: int) -> NDArray[np.uint8]:
        path = self._wanted.folder / self._survey.names[number]
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").digest()
            if _beginning(digest) != int(self._survey.beginnings[number]):
                raise WorkloadError(
                    f"the picture {path} changed while it was read: run again once the folder is "
                    "complete, best on a copy that nobody writes to"
                )
            file.seek(0)
            with warnings.catch_warnings():
                picture_files.take_warnings()
                return picture_files.square(file, self._side)

    def shards(
        self, sample: list[ShardRows], held: list[ShardRows], places: list[int]
    ) -> Iterator[ShardRows]:
        """Divide the pictures, as `shard_set.Divide`; places are among the files in order.

        Raises:
            WorkloadError: a file is no whole picture, or has changed.
        """
        shares, broken, seen = self._shares, picture_files.Broken(), picture_files.Seen()
        learned, judged, kept = (_Pictures(self._shape) for _ in range(3))
        labels = array("q")
        for number, image in self._pictures(broken):
            label = int(self._survey.labels[number])
            if not seen.is_new(image, label):
                continue
            labels.append(label)
            role, _ = shard_set.drawn(self._wanted.seed, image.tobytes())
            if role < shares.held:
                places.append(number)
                kept.add(image, label)
            elif role >= 1 - shares.sampled:
                judged.add(image, label)
            else:
                learned.add(image, label)
            if learned.rows == shares.shard_rows:
                yield learned.take()
        count = len(self._survey.names)
        broken.refuse(count, self._wanted.folder)
        picture_files.refuse_alike(
            self._survey.classes, np.asarray(labels, dtype=np.int64), self._wanted.folder
        )
        self._twice, self._contrary = count - len(labels), seen.contrary
        for pictures, to in ((judged, sample), (kept, held)):
            if pictures.rows:
                to.append(pictures.take())
        if learned.rows:
            yield learned.take()

    def told(self) -> dict[str, Any]:
        """Return the fields that are known once the pictures were divided."""
        read = picture_files.described(
            self._shape, self._twice, self._contrary, self._wanted.folder
        )
        count = len(self._survey.names)
        return {"read": [f"streamed from {count:,} pictures", *read], "dropped": self._twice}


class _Pictures:
    """Small pictures that are taken together.

    Args:
        shape: of each, (channels, side, side).
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self._shape = shape
        self._images: list[NDArray[np.uint8]] = []
        self._labels: list[int] = []

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return len(self._labels)

    def add(self, image: NDArray[np.uint8], label: int) -> None:
        """Take a picture (side, side, 3)."""
        self._images.append(image.transpose(2, 0, 1)[: self._shape[0]])
        self._labels.append(label)

    def take(self) -> ShardRows:
        """Return all of them, and keep none."""
        images, labels = np.stack(self._images), np.asarray(self._labels, dtype=np.int64)
        self._images.clear()
        self._labels.clear()
        return {IMAGE: images}, labels


def _make(wanted: Wanted, folder: Path | None, keyring: KeyRing | None) -> Made:
    survey = _survey(wanted)
    made_of = wanted.made_of_files(survey.files)
    plan = _Plan(wanted, survey)
    stage = None if folder is None else Stage(folder, keyring, plan.fields, made_of)
    advice = f"of {len(survey.names):,}: take more of them, or another --seed or --holdout"
    parts = shard_set.divide(plan.shards, stage, f"picture of {wanted.folder}", advice)
    inputs, labels = parts.joined()
    return Made(
        {IMAGE: inputs[IMAGE].astype(np.float32)}, labels, {**plan.fields, **plan.told()},
        parts.sampled, np.asarray(parts.places, dtype=np.int64),
        parts.stream(made_of, survey.files),
        (lambda: plan.shards([], [], [])) if stage is None else stage.rows,
    )  # fmt: skip
