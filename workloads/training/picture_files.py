"""Pictures of files as arrays of one size."""

from __future__ import annotations

import hashlib
import struct
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from falaj.workloads.errors import WorkloadError, some
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
_SHOWN: Final = 3

Pixels = NDArray[np.uint8]


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
    files = [path for paths in found.values() for path in paths]
    labels = np.repeat(np.arange(len(found)), [len(paths) for paths in found.values()])
    with warnings.catch_warnings():
        take_warnings()
        images = _squares(files, folder)
    kept, twice, contrary = _once(images, labels)
    images, labels = images[kept], labels[kept]
    counts = np.bincount(labels, minlength=len(found)).tolist()
    for name, count in zip(found, counts, strict=True):
        if count < picture_folder.LEAST_OF_CLASS:
            raise WorkloadError(
                f"all pictures of {name!r} in {folder} are the same: add others, or remove the "
                "class"
            )
    if (images == images[..., :1]).all():  # no colour anywhere
        images = images[..., :1]
    channels_first = np.ascontiguousarray(images.transpose(0, 3, 1, 2), dtype=np.float32)
    return Pictures(channels_first, labels.astype(np.int64), list(found), twice, contrary)


def take_warnings() -> None:
    """Refuse pictures that claim to be huge, and say nothing of others.

    What notes of cameras are like is nothing that a person here can mend.
    """
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", Image.DecompressionBombWarning)


def _squares(files: list[Path], folder: Path) -> Pixels:
    """All pictures in one size: `SIDE`, or that of the largest where all are smaller."""
    broken: dict[Path, str] = {}
    sizes: list[int] = []
    for path in files:
        try:
            sizes.append(looked_at(path)[0])
        except BROKEN as error:
            broken[path] = reason(error)
    side = min(SIDE, max(sizes, default=0))
    images = np.zeros((len(files), side, side, 3), dtype=np.uint8)
    for place, path in enumerate(files if side >= SMALLEST_SIDE else ()):
        try:
            images[place] = square(path, side)
        except BROKEN as error:
            broken[path] = reason(error)
    if broken:
        named = [f"{path.relative_to(folder)} ({why})" for path, why in broken.items()]
        raise WorkloadError(
            f"{len(named)} of {len(files)} files of {folder} can't be read as pictures: "
            f"{some(named, _SHOWN)}; remove them, or put whole ones in their place"
        )
    if side < SMALLEST_SIDE:
        raise WorkloadError(
            f"no picture of {folder} is {SMALLEST_SIDE} pixels high and wide, which is the least"
        )
    return images


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


def _once(images: Pixels, labels: NDArray[np.int64]) -> tuple[list[int], int, int]:
    """Places of pictures to keep, how many are twice in a class, and how many in two classes.

    The same picture in what is learned and what is held out would be known by heart.
    """
    kept: list[int] = []
    classes: dict[bytes, set[int]] = {}
    for place, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        seen = classes.setdefault(hashlib.sha256(image.tobytes()).digest(), set())
        if label not in seen:
            seen.add(label)
            kept.append(place)
    contrary = sum(len(each) for each in classes.values() if len(each) > 1)
    return kept, len(images) - len(kept), contrary


def reason(error: BaseException) -> str:
    """Return why a file is no picture."""
    return "no picture" if isinstance(error, UnidentifiedImageError) else str(error)
