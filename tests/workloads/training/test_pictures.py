"""Pictures in folders: files that aren't any, how they are read, and a model that knows them."""

from __future__ import annotations

import io
import os
import random
import shutil
import struct
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from falaj.workloads import bounds, demo
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.pipeline import serving_of
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import picture_files, picture_folder, snapshot
from tests.workloads.training.pictures import SHAPES, shape, write_shapes


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shapes(tmp_path_factory.mktemp("pictures") / "shapes", 12)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_shapes(tmp_path_factory.mktemp("few") / "shapes", 2)


def put(folder: Path, name: str, image: Image.Image, **options: Any) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path, **options)
    return path


def plain(*colour: int, size: tuple[int, int] = (40, 40)) -> Image.Image:
    return Image.new("RGB", size, (colour[0], colour[-2], colour[-1]))


def claiming(width: int, height: int) -> bytes:
    """A PNG of some bytes that says it is huge."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(
            ">I", zlib.crc32(kind + data)
        )  # fmt: skip

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def no_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def one_class(folder: Path) -> None:
    shutil.rmtree(folder / "cross")


def beside(folder: Path) -> None:
    put(folder, "whose.png", plain(1, 2, 3))


def none_of_a_class(folder: Path) -> None:
    (folder / "square").mkdir()


def a_link(folder: Path) -> None:
    (folder / "circle" / "far.png").symlink_to(folder / "cross" / "0.png")


def a_linked_class(folder: Path) -> None:
    (folder / "cross").rename(folder.parent / "cross")
    (folder / "cross").symlink_to(folder.parent / "cross")


def a_linked_folder(folder: Path) -> None:
    (folder / "circle" / "more").symlink_to(folder.parent)


def a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "circle" / "pipe.png")


def no_text(folder: Path) -> None:
    (folder / "cross").rename(os.fsdecode(os.fsencode(folder) + b"/cr\xffss"))


def steering(folder: Path) -> None:
    (folder / "cross").rename(folder / "cr\x1b[31moss")


def steering_file(folder: Path) -> None:
    (folder / "cross" / "\x1b[31m.png").write_bytes(b"x")


def hardly_any(folder: Path) -> None:
    put(folder, "square/0.png", plain(1, 2, 3))


def the_same(folder: Path) -> None:
    for number in range(3):
        put(folder, f"square/{number}.png", plain(1, 2, 3))


def a_text(folder: Path) -> None:
    (folder / "circle" / "notes.png").write_text("no picture")


def nothing(folder: Path) -> None:
    (folder / "circle" / "empty.jpg").write_bytes(b"")


def cut_off(folder: Path) -> None:
    path = folder / "cross" / "1.jpg"
    path.write_bytes(path.read_bytes()[:-200])


def huge(folder: Path) -> None:
    (folder / "circle" / "huge.png").write_bytes(claiming(30_000, 30_000))


def another_format(folder: Path) -> None:
    target = io.BytesIO()
    plain(1, 2, 3).save(target, "TIFF")
    (folder / "circle" / "scan.png").write_bytes(target.getvalue())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (no_folder, "has pictures in no folder"),
        (one_class, "has pictures in 'circle': give a folder with a folder of .bmp, .jpeg"),
        (beside, r"pictures beside its folders \('whose.png'\): put each into the folder of its"),
        (hardly_any, "less than 2 pictures of 'square'"),
        (none_of_a_class, "less than 2 pictures of 'square': add some, or remove the class"),
        (no_text, r"names aren't text in UTF-8, or have control characters \('cr\\udcffss'\)"),
        (steering, r"have control characters \('cr\\x1b\[31moss'\): classes are called as"),
        (steering_file, r"read as pictures: cross/\\x1b\[31m.png \(no picture\)"),
        (a_link, r"the picture \S+/circle/far.png is no file, but a link"),
        (a_pipe, r"the picture \S+/circle/pipe.png is no file, but a link, a folder or something"),
        (a_linked_class, r"/cross is a link to a folder, which isn't followed: put the folder"),
        (a_linked_folder, r"/circle/more is a link to a folder, which isn't followed"),
        (the_same, "all pictures of 'square' in"),
        (a_text, r"1 of 13 files of \S+ can't be read as pictures: circle/notes.png \(no picture"),
        (nothing, r"circle/empty.jpg \(no picture\); remove them, or put whole ones"),
        (cut_off, r"cross/1.jpg \("),
        (huge, r"circle/huge.png \("),
        (another_format, r"circle/scan.png \(no picture\)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.parametrize("most", [bounds.PICTURES_IN_MEMORY, 1], ids=["in memory", "streamed"])
def test_what_can_t_be_learned_from_is_refused(
    spoil: Any, said: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", most)
    folder = write_shapes(tmp_path / "shapes", 6)
    spoil(folder)
    with pytest.raises(WorkloadError, match=said):
        datasets.build(datasets.Source(str(folder)))


@pytest.mark.parametrize("most", [bounds.PICTURES_IN_MEMORY, 1], ids=["in memory", "streamed"])
def test_many_broken_ones_are_named_by_some(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", most)
    folder = write_shapes(tmp_path / "shapes", 4)
    for number in range(22):
        (folder / "circle" / f"broken{number:02d}.png").write_bytes(b"x")
    said = r"22 of 30 files .*broken00\.png.*broken19\.png \(no picture\) and 2 more; remove"
    with pytest.raises(WorkloadError, match=said):
        datasets.build(datasets.Source(str(folder)))


def test_a_file_that_went_away_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_shapes(tmp_path / "shapes", 6)
    found = picture_folder.classes(folder)
    (folder / "cross" / "1.jpg").unlink()
    monkeypatch.setattr(picture_folder, "classes", lambda _: found)
    for most in (bounds.PICTURES_IN_MEMORY, 1):
        monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", most)
        with pytest.raises(WorkloadError, match=r"cross/1.jpg \(No such file or directory\)"):
            datasets.build(datasets.Source(str(folder)))


def test_pictures_of_a_few_pixels_are_refused(tmp_path: Path) -> None:
    for number in range(12):
        for kind in SHAPES:
            put(tmp_path, f"{kind}/{number}.png", plain(number, 2, 3, size=(40, 5)))
    with pytest.raises(WorkloadError, match=r"no picture of .* is 6 pixels high and wide"):
        picture_files.read(tmp_path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"target": "digit"}, "have one target, 'class', not 'digit'"),
        ({"task": "regression"}, "are classified: use --task auto or classification"),
    ],
)
def test_what_only_tables_have_is_refused(more: Any, said: str, shapes: Path) -> None:
    with pytest.raises(WorkloadError, match=said):
        datasets.build(datasets.Source(str(shapes), **more))


@given(where=st.integers(0, 1 << 16), value=st.integers(0, 255), cut=st.floats(0, 1))
def test_a_damaged_file_is_read_or_refused_and_nothing_else(
    where: int, value: int, cut: float, few: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("damaged") / "shapes"
    shutil.copytree(few, folder)
    try:
        for path in (folder / "circle" / "0.png", folder / "circle" / "1.jpg"):
            data = bytearray(path.read_bytes())
            data[where % len(data)] = value
            path.write_bytes(data[: max(1, round(cut * 2 * len(data)))])
        found = picture_files.read(folder)
        assert found.images.shape[2:] == (32, 32)
        assert np.isfinite(found.images).all()
    except WorkloadError as error:
        assert "can't be read as pictures" in str(error)
    finally:
        shutil.rmtree(folder)


def read_one(folder: Path, image: Image.Image, name: str = "0.png", **options: Any) -> Any:
    """What is read of a picture, beside others that are red; (channels, side, side)."""
    put(folder, f"own/{name}", image, **options)
    put(folder, "own/other.png", plain(250, 0, 0))
    for number in range(2):
        put(folder, f"red/{number}.png", plain(255 - number, 0, 0))
    return picture_files.read(folder).images[0]


def test_colours_come_as_they_are(tmp_path: Path) -> None:
    read = read_one(tmp_path, plain(10, 20, 30))
    assert read.shape == (3, 32, 32)
    assert read.dtype == np.float32
    assert (read == np.array([10, 20, 30], dtype=np.float32)[:, None, None]).all()


def test_what_is_clear_lies_on_white(tmp_path: Path) -> None:
    assert (read_one(tmp_path, Image.new("RGBA", (40, 40), (9, 9, 9, 0))) == 255).all()


def test_a_palette_is_looked_up(tmp_path: Path) -> None:
    read = read_one(tmp_path, plain(10, 20, 30).convert("P", palette=Image.Palette.ADAPTIVE))
    assert read[:, 0, 0].tolist() == [10, 20, 30]


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    deep = Image.fromarray(np.full((40, 40), 200 * 257, dtype=np.uint16))
    assert deep.mode.startswith("I;16")
    assert (read_one(tmp_path, deep) == 200).all()


def test_colours_of_a_print_are_seen_as_light(tmp_path: Path) -> None:
    read = read_one(tmp_path, plain(10, 200, 30).convert("CMYK"), "0.jpg", quality=95)
    assert read[1].mean() > read[0].mean() + 100


def test_a_picture_is_turned_as_its_camera_noted(tmp_path: Path) -> None:
    image = Image.new("RGB", (64, 64), (0, 0, 0))
    image.paste((255, 255, 255), (0, 0, 64, 32))  # the upper half is light
    notes = Image.Exif()
    notes[0x0112] = 3  # upside down
    read = read_one(tmp_path, image, "0.jpg", exif=notes, quality=95)
    assert read[:, :10].mean() < 40
    assert read[:, -10:].mean() > 215


def test_nothing_is_said_of_notes_that_are_damaged(tmp_path: Path) -> None:
    notes = Image.Exif()
    notes[0x010E] = "described at length"
    path = put(tmp_path, "own/0.jpg", plain(10, 20, 30), exif=notes)
    data = bytearray(path.read_bytes())
    place = data.index(b"\x01\x0e\x00\x02")
    data[place + 4 : place + 8] = b"\x00\xff\xff\xff"  # longer than the file
    put(tmp_path, "own/1.png", plain(1, 2, 3))
    for number in range(2):
        put(tmp_path, f"red/{number}.png", plain(255 - number, 0, 0))
    path.write_bytes(data)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        picture_files.read(tmp_path)
    assert said == []
    with pytest.warns(UserWarning, match="Tag data larger than file"), Image.open(path) as image:
        image.getexif().get(0x010E)


def test_a_picture_is_cut_around_its_middle(tmp_path: Path) -> None:
    image = Image.new("RGB", (120, 40), (255, 0, 0))
    image.paste((0, 0, 255), (40, 0, 80, 40))
    assert (read_one(tmp_path, image)[:, :, 4:-4] == np.array([0, 0, 255])[:, None, None]).all()


def test_without_any_colour_there_is_one_channel(tmp_path: Path) -> None:
    for kind, light in (("dark", 10), ("light", 200)):
        for number in range(3):
            put(tmp_path, f"{kind}/{number}.png", Image.new("L", (9, 8), light + number))
    found = picture_files.read(tmp_path)
    assert found.images.shape == (6, 1, 8, 8), "as large as the files are, where that is less"
    assert found.images[:, 0, 0, 0].tolist() == [10, 11, 12, 200, 201, 202]
    assert found.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert found.classes == ["dark", "light"]


def test_the_same_picture_is_there_once(tmp_path: Path) -> None:
    folder = write_shapes(tmp_path / "shapes", 12)
    shutil.copy(folder / "circle" / "0.png", folder / "circle" / "copy.png")
    shutil.copy(folder / "circle" / "2.png", folder / "cross" / "wrong.png")
    (folder / "circle" / "notes.txt").write_text("x")
    (folder / ".hidden").mkdir()
    put(folder, "circle/.thumbnail.png", plain(1, 2, 3))
    described = datasets.build(datasets.Source(str(folder))).description
    assert described["rows"]["total"] == 25
    assert described["rows"]["dropped"] == 1
    notes = "\n".join(described["notes"])
    assert "32x32 pixels, red, green and blue" in notes
    assert "1 pictures were left out: the same lies in their class" in notes
    assert "2 pictures lie in more than one class" in notes
    assert "1 files aren't pictures by their names" in notes


def test_the_snapshot_is_of_what_the_pictures_show(shapes: Path, tmp_path: Path) -> None:
    first = datasets.build(datasets.Source(str(shapes)))
    moved = tmp_path / "elsewhere" / "shapes"
    shutil.copytree(shapes, moved)
    assert datasets.build(datasets.Source(str(moved))).digest == first.digest
    put(moved, "circle/0.png", shape("circle", random.Random(99)))
    assert datasets.build(datasets.Source(str(moved))).digest != first.digest
    assert first.description["classes"] == list(SHAPES)
    assert first.description["target"] == "class"
    assert first.description["source"] == {"kind": "pictures", "name": "shapes"}
    held_out = first.labels[first.description["rows"]["train"] :]
    assert set(held_out.tolist()) == {0, 1}, "of each class"


@pytest.mark.parametrize(
    ("classes", "are_texts"),
    [(list(SHAPES), True), ([str(each) for each in range(10)], False), (["0", "2"], True)],
)
def test_the_server_answers_with_the_names_of_classes(classes: list[str], are_texts: bool) -> None:
    """Of the digits alone the number is the name."""
    trained = SimpleNamespace(
        family="images", preprocessing=None, target=None, classes=classes, pairs=None
    )  # fmt: skip
    rows = SimpleNamespace(inputs={"image": np.zeros((2, 3, 32, 32))})
    serving = serving_of(cast("Any", trained), cast("Any", rows))
    assert serving.text_labels is are_texts
    assert serving.shape == (3, 32, 32)


def test_an_example_shows_nobody_s_picture(shapes: Path, tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    folder = datasets.write(datasets.build(datasets.Source(str(shapes))), tmp_path / "sets", ring)
    (tensor,) = demo.example("shapes", folder, tmp_path / "ring")["inputs"]
    assert tensor["shape"] == [1, 3, 32, 32]
    assert len(tensor["data"]) == 3 * 32 * 32
    assert len(set(tensor["data"])) == 1
    assert 0 < tensor["data"][0] < 255
    assert snapshot.load_rows(folder, ring, "held_out").inputs["image"].shape[1:] == (3, 32, 32)


def test_drawings_have_all_shades_whatever_the_largest_value_is() -> None:
    assert demo.drawing(np.array([[0.0, 255.0]]), 255.0) == "    @@"
    assert demo.drawing(np.array([[0.0, 16.0]]), 16.0) == "    @@"
