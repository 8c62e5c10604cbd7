"""Folders of pictures for tests: two shapes in colours, where they can't be mistaken."""

from __future__ import annotations

import random
from pathlib import Path

from PIL import Image, ImageDraw

SHAPES = ("circle", "cross")


def shape(kind: str, chance: random.Random) -> Image.Image:
    """One picture of a shape."""
    width, height = chance.randint(40, 80), chance.randint(40, 80)
    light = (chance.randint(120, 255), chance.randint(120, 255), chance.randint(120, 255))
    dark = (chance.randint(0, 90), chance.randint(0, 90), chance.randint(0, 90))
    image = Image.new("RGB", (width, height), light)
    draw = ImageDraw.Draw(image)
    half, x, y = min(width, height) // 3, width // 2, height // 2
    box = (x - half, y - half, x + half, y + half)
    if kind == "circle":
        draw.ellipse(box, fill=dark)
    else:
        draw.line(box, fill=dark, width=6)
        draw.line((box[0], box[3], box[2], box[1]), fill=dark, width=6)
    return image


def write_shapes(folder: Path, count: int) -> Path:
    """Write so many pictures of each shape, PNG and JPEG in turn; return the folder."""
    chance = random.Random(5)
    for kind in SHAPES:
        (folder / kind).mkdir(parents=True)
        for number in range(count):
            ending = ("png", "jpg")[number % 2]
            shape(kind, chance).save(folder / kind / f"{number}.{ending}")
    return folder
