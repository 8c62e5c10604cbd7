"""Pictures of files as arrays of one size."""

from __future__ import annotations

import hashlib
import struct
import warnings
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from falaj.workloads.errors import WorkloadError, printable, some
from falaj.workloads.training import picture_folder
from falaj.workloads.training.models import SMALLEST_SIDE

LARGEST: Final = 255.0
"""The lightest value of a pixel."""
SIDE: Final = 32
"""Pixels that a picture is high and wide where the files have as many: more take a larger network
than the one that learns them."""
MOST_PIXELS: Final = 50_000_000
"""Of a file: a small one can claim to be huge."""

_FORMATS: Final = ("BMP", "JPEG", "PNG", "WEBP")
_DEEP: Final = 257.0
"""What a step of 8 bits is in 16 bits."""
BROKEN: Final = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    OverflowError,
    Image.DecompressionBombError,
    Image.DecompressionBombWarning,
)
"""What Pillow raises for files that aren't what they say."""
_SHOWN: Final = 20
_LATEST: Final = 1 << 16
"""Digests that are added one by one, before they are sorted among the others."""

Pixels = NDArray[np.uint8]
_Given = ParamSpec("_Given")
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class Pictures:
    """Pictures of one size.

    Attributes:
        images: (rows, channels, side, side), values from 0 to `LARGEST`; three channels are red,
            green and blue.
        labels: the number of each one's class, (rows,).
        classes: their names, in order.
        twice: pictures that were left out because the same one is there.
        contrary: pictures of which the same one lies in another class, too.
    """

    images: NDArray[np.float32]
    labels: NDArray[np.int64]
    classes: list[str]
    twice: int
    contrary: int


def read(folder: Path) -> Pictures:
    """Read the pictures of a folder.

    Each is turned as its camera noted, laid on white where it is transparent, cut to a square
    around its middle, and made smaller.

    Raises:
        WorkloadError: a file can't be read as a picture, or as `picture_folder.classes` says.
    """
    found = picture_folder.classes(folder)
    files = [name for names in found.values() for name in names]
    labels = np.repeat(np.arange(len(found)), [len(names) for names in found.values()])
    with warnings.catch_warnings():
        take_warnings()
        images = _squares(files, folder)
    seen = Seen()
    kept = [place for place, image in enumerate(images) if seen.is_new(image, int(labels[place]))]
    images, labels = images[kept], labels[kept]
    refuse_alike(list(found), labels, folder)
    if not has_colour(images):
        images = images[..., :1]
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    return Pictures(
        channels_first, labels.astype(np.int64), list(found), len(files) - len(kept), seen.contrary
    )


def described(shape: Sequence[int], twice: int, contrary: int, folder: Path) -> list[str]:
    """Return what people are told of a folder's pictures.

    Args:
        shape: (channels, height, width).
        twice: as of `Pictures`.
        contrary: likewise.
        folder: that they lie in.
    """
    channels, height, width = shape
    found = [f"{height}x{width} pixels, {'grey' if channels == 1 else 'red, green and blue'}"]
    if twice:
        found.append(f"{twice} pictures were left out: the same lies in their class")
    if contrary:
        found.append(f"{contrary} pictures lie in more than one class")
    if others := picture_folder.others(folder):
        found.append(f"{others} files aren't pictures by their names")
    return found


def refuse_alike(classes: list[str], labels: NDArray[np.int64], folder: Path) -> None:
    """Refuse classes of which hardly a picture is left.

    Args:
        classes: their names.
        labels: of the pictures that are there for the first time.
        folder: that they lie in.

    Raises:
        WorkloadError: there is one; names the first.
    """
    counts = np.bincount(labels, minlength=len(classes)).tolist()
    for name, count in zip(classes, counts, strict=True):
        if count < picture_folder.LEAST_OF_CLASS:
            raise WorkloadError(
                f"all pictures of {name!r} in {folder} are the same: add others, or remove the "
                "class"
            )


def has_colour(images: Pixels) -> bool:
    """Whether there is a colour anywhere in pictures (…, 3)."""
    return bool((images != images[..., :1]).any())


def take_warnings() -> None:
    """Refuse pictures that claim to be huge, and say nothing of others.

    What notes of cameras are like is nothing that a person here can mend.
    """
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)


def _squares(files: list[str], folder: Path) -> Pixels:
    """All pictures in one size: `SIDE`, or that of the largest where all are smaller."""
    broken = Broken()
    looks = [broken.attempt(name, looked_at, folder / name) for name in files]
    largest = max((look[0] for look in looks if look is not None), default=0)
    side = min(SIDE, largest)
    images = np.zeros((len(files), side, side, 3), dtype=np.uint8)
    for place, name in enumerate(files if side >= SMALLEST_SIDE else ()):
        image = broken.attempt(name, square, folder / name, side)
        if image is not None:
            images[place] = image
    broken.refuse(len(files), folder)
    require_side(largest, folder)
    return images


def require_side(side: int, folder: Path) -> int:
    """Return how high and wide pictures become.

    Args:
        side: of the largest file, in pixels.
        folder: of the files.

    Raises:
        WorkloadError: there is no model of so small ones.
    """
    if side < SMALLEST_SIDE:
        raise WorkloadError(
            f"no picture of {folder} is {SMALLEST_SIDE} pixels high and wide, which is the least"
        )
    return min(SIDE, side)


class Broken:
    """Files of a folder that aren't the pictures that they should be."""

    def __init__(self) -> None:
        self._why: dict[str, str] = {}

    def attempt(
        self, name: str, read: Callable[_Given, _Read], *given: _Given.args, **named: _Given.kwargs
    ) -> _Read | None:
        """Return what ``read`` returns; None where it finds no picture, which is noted.

        Args:
            name: of the file.
            read: raises one of `BROKEN` where it is none.
            given: what it is called with.
            named: likewise, by name.
        """
        try:
            return read(*given, **named)
        except BROKEN as error:
            self._why[name] = reason(error)
            return None

    def refuse(self, count: int, folder: Path) -> None:
        """Refuse a folder with such files, of so many.

        Raises:
            WorkloadError: there are some; names the first.
        """
        if self._why:
            named = [f"{printable(name)} ({self._why[name]})" for name in sorted(self._why)]
            raise WorkloadError(
                f"{len(named)} of {count} files of {folder} can't be read as pictures: "
                f"{some(named, _SHOWN)}; remove them, or put whole ones in their place"
            )


def looked_at(file: Path | BinaryIO) -> tuple[int, bool]:
    """Return the shorter side in pixels, and whether it is grey, by the first bytes alone."""
    with Image.open(file, formats=_FORMATS) as image:
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width}x{image.height} pixels, {MOST_PIXELS:,} are allowed")
        return min(image.size), image.mode in {"1", "L", "LA", "La"}


def square(file: Path | BinaryIO, side: int) -> Pixels:
    """Return one picture in colour, (side, side, 3), as `read` cuts them."""
    with Image.open(file, formats=_FORMATS) as opened:
        # What a JPEG has more than twice of isn't even decoded.
        opened.draft(None, (2 * side, 2 * side))
        image = _plain(ImageOps.exif_transpose(opened))
    return np.asarray(ImageOps.fit(image, (side, side), Image.Resampling.BICUBIC))


def _plain(image: Image.Image) -> Image.Image:
    """The picture in red, green and blue of 8 bits each."""
    if image.mode.startswith("I"):
        deep = np.asarray(image, dtype=np.float64) / _DEEP
        return Image.fromarray(deep.clip(0, LARGEST).round().astype(np.uint8)).convert("RGB")
    if "transparency" in image.info or image.mode in {"RGBA", "LA", "PA", "RGBa", "La"}:
        clear = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear).convert("RGB")
    return image.convert("RGB")


class Seen:
    """Which pictures are there for the first time, in 16 bytes for each.

    The same picture in what is learned and what is held out would be known by heart.
    """

    def __init__(self) -> None:
        self._before = np.empty(0, dtype=np.uint64)
        self._latest: set[int] = set()
        self._pictures = array("Q")

    def is_new(self, image: NDArray[np.uint8], label: int) -> bool:
        """Whether a picture wasn't there before in its class; from now on it is."""
        content = hashlib.sha256(image.tobytes()).digest()
        key = _number(hashlib.sha256(content + label.to_bytes(8)).digest())
        place = int(np.searchsorted(self._before, np.uint64(key)))
        is_before = place < len(self._before) and int(self._before[place]) == key
        if is_before or key in self._latest:
            return False
        self._latest.add(key)
        self._pictures.append(_number(content))
        if len(self._latest) == _LATEST:
            latest = np.fromiter(self._latest, dtype=np.uint64, count=_LATEST)
            self._before = np.union1d(self._before, latest)
            self._latest.clear()
        return True

    @property
    def contrary(self) -> int:
        """Return how many there are of which the same one lies in another class, too."""
        _, counts = np.unique(np.asarray(self._pictures, dtype=np.uint64), return_counts=True)
        return int(counts[counts > 1].sum())


def _number(digest: bytes) -> int:
    return int.from_bytes(digest[:8])


def reason(error: BaseException) -> str:
    """Return why a file is no picture."""
    if isinstance(error, UnidentifiedImageError):
        return "no picture"
    return (isinstance(error, OSError) and error.strerror) or str(error)
