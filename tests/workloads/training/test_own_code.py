"""A team's own code: what is refused of a folder, a name or an option before any of it is run."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import command, own_code
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.own_code import find, read_folder, read_options, unpack

NAME = "mine.network:Network"
NETWORK = "from torch import nn\n\nclass Network(nn.Module):\n    pass\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of code with one class."""
    place = tmp_path / "models"
    (place / "mine").mkdir(parents=True)
    (place / "mine" / "network.py").write_text(NETWORK)
    return place


def _empty(folder: Path) -> None:
    (folder / "mine" / "network.py").rename(folder / "mine" / "network.txt")


def _linked(folder: Path) -> None:
    (folder / "mine" / "secret.py").symlink_to("/etc/passwd")


def _linked_folder(folder: Path) -> None:
    (folder / "other").symlink_to(folder.parent)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "mine" / "pipe.py")


def _many(folder: Path) -> None:
    for number in range(own_code.MOST_FILES):
        (folder / f"part{number}.py").touch()


def _big(folder: Path) -> None:
    with (folder / "big.py").open("wb") as file:
        file.truncate(own_code.MOST_BYTES + 1)


def _hides(name: str) -> Any:
    def make(folder: Path) -> None:
        (folder / name).write_text("")

    return make


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_empty, "there is no Python file in "),
        (_linked, "secret.py is a symbolic link to /etc/passwd: code travels with the model"),
        (_linked_folder, "other is a symbolic link"),
        (_pipe, "pipe.py is no file"),
        (_many, "has more than 500 Python files or 8 MiB of them"),
        (_big, "has more than 500 Python files or 8 MiB of them"),
        (_hides("json.py"), "models is the name of a module of Python's own, which it would hide"),
        (_hides("falaj.py"), "models is the name of Falaj's own package"),
        (_hides("torch.py"), "models is the name of a package that is installed here"),
    ],
)
def test_a_folder_that_cannot_travel_is_refused(folder: Path, change: Any, words: str) -> None:
    change(folder)
    with pytest.raises(WorkloadError) as caught:
        read_folder(folder)
    assert words in str(caught.value)


def test_a_folder_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(WorkloadError, match=r"absent: there is none; give the folder"):
        read_folder(folder / "absent")
    with pytest.raises(WorkloadError, match=r"network.py: it is a file; give the folder"):
        read_folder(folder / "mine" / "network.py")


def test_nothing_but_code_is_taken_along(folder: Path) -> None:
    for name in (
        ".env", ".secret.py", "mine/key.pem", "mine/rows.csv", ".git/hook.py", "my-script.py",
        "mine/__pycache__/network.py", "2023/old.py", "mine/notes.PY",
    ):  # fmt: skip
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("SECRET = 'k'")
    assert list(read_folder(folder).files) == ["mine/network.py"]


def test_the_digest_is_of_names_and_contents_alone(folder: Path, tmp_path: Path) -> None:
    first = read_folder(folder)
    os.utime(folder / "mine" / "network.py", (1, 1))
    moved = folder.rename(tmp_path / "moved")
    again = read_folder(moved)
    assert (again.digest, again.archive()) == (first.digest, first.archive())
    (moved / "mine" / "network.py").rename(moved / "mine" / "net.py")
    renamed = read_folder(moved).digest
    (moved / "mine" / "net.py").write_text(NETWORK + "\n")
    assert len({first.digest, renamed, read_folder(moved).digest}) == 3


def test_code_comes_back_from_its_archive_and_nothing_else_does(folder: Path) -> None:
    code = read_folder(folder)
    packed, path = code.archive(), Path("run/code.zip")
    assert unpack(packed, code.digest, path) == code
    (folder / "mine" / "network.py").write_text("")
    other = read_folder(folder).archive()
    for archive in (other, packed[:-9], b"", b"no archive", packed.replace(b"class", b"klass")):
        with pytest.raises(WorkloadError, match=r"run/code.zip isn't the code .* train it again"):
            unpack(archive, code.digest, path)


def test_an_archive_that_unpacks_to_more_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "code.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("big.py", bytes(own_code.MOST_BYTES + 1))
    with pytest.raises(WorkloadError, match="isn't the code"):
        unpack(path.read_bytes(), "0" * 64, path)


@pytest.mark.parametrize(
    ("packing", "change"),
    [
        (zipfile.ZIP_DEFLATED, {}),
        (zipfile.ZIP_BZIP2, {-40: 255}),
        (zipfile.ZIP_STORED, {-6: 255}),  # where the directory begins
    ],
)
def test_an_archive_of_another_program_or_a_damaged_one_is_refused(
    packing: int, change: dict[int, int]
) -> None:
    code, file = own_code.OwnCode({"a.py": b"hello" * 50, "b.py": b"xyz"}), io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as packed:
        for name, content in code.files.items():
            packed.writestr(name, content)
    data = bytearray(file.getvalue())
    for place, value in change.items():
        data[place] = value
    with pytest.raises(WorkloadError, match="isn't the code"):
        unpack(bytes(data), code.digest, Path("code.zip"))


def test_a_name_that_holds_the_content_of_another_file_is_no_way_to_the_same_digest() -> None:
    code = own_code.OwnCode({"a.py": b"hello", "b.py": b"xyz"})
    other = own_code.OwnCode({"a.py 5\nhellob.py": b"xyz"})
    assert other.digest == code.digest
    with pytest.raises(WorkloadError, match="isn't the code"):
        unpack(other.archive(), code.digest, Path("code.zip"))


def test_a_folder_whose_name_no_system_has_is_refused() -> None:
    with pytest.raises(WorkloadError, match="File name too long"):
        read_folder(Path("x" * 300))


def test_what_is_too_large_is_not_read_into_the_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _big(folder)

    def read(path: Path, _: str) -> bytes:
        assert path.name != "big.py"
        return path.read_bytes()

    monkeypatch.setattr(own_code, "read_bytes", read)
    with pytest.raises(WorkloadError, match="or 8 MiB of them"):
        read_folder(folder)


@pytest.mark.parametrize("text", ["x = " + "-" * 200_000 + "1", "x = 1" + " + 1" * 20_000])
def test_code_that_is_nested_too_deeply_is_refused(folder: Path, text: str) -> None:
    (folder / "mine" / "network.py").write_text(text)
    with pytest.raises(WorkloadError, match=r"mine/network\.py has an expression that is nested"):
        find(read_folder(folder), NAME)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{NAME}\n", "with --code it names"),
        ("mine.network", "with --code it names a module and a class in it, as mine.network:"),
        ("mine/network.py:Network", "with --code it names"),
        ("mine.netwrok:Network", "no module 'mine.netwrok'; did you mean mine.network; it has"),
        ("mine.network:Networks", "mine/network.py has no class 'Networks'; it has Network"),
        ("mine.broken:Network", "mine/broken.py, line 2: "),
    ],
)
def test_a_class_that_is_not_there_is_refused(folder: Path, name: str, words: str) -> None:
    (folder / "mine" / "broken.py").write_text("import torch\nclass Network(:\n")
    with pytest.raises(WorkloadError) as caught:
        find(read_folder(folder), name)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["width"], "--option 'width': allowed is NAME=VALUE"),
        (["width=1", "width=2"], "names width twice"),
        (["my-width=1"], "option 'my-width': allowed are letters"),
        (["width=null"], "option width is None: allowed are numbers (whole"),
        (['width={"a": 1}'], "allowed are numbers (whole"),
        (["width=[[1]]"], "allowed are numbers (whole"),
        (["width=NaN"], "option width is nan"),
        (["width=1e400"], "option width is inf"),
        (["width=" + "1" * 400], "allowed are numbers (whole ones below"),
        (["width=[-9007199254740992]"], "is [-9007199254740992]: allowed are numbers (whole ones"),
        (['width="\\ud800"'], "option width is '\\ud800': allowed are"),
        (["width=" + "[" * 100_000], "texts of up to 1,000 characters"),
        (["width\n=1"], "allowed are letters"),
        (["width=" + "x" * 2_000], "texts of up to 1,000 characters"),
        ([f"o{n}=1" for n in range(101)], "101 options of the model: allowed are 100"),
    ],
)
def test_an_option_that_is_no_plain_value_is_refused(texts: list[str], words: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        read_options(texts)
    assert words in str(caught.value)


def test_options_are_read_as_json_or_text() -> None:
    texts = ["a=1", "b=0.5", "c=true", "d=[1, 2]", "e=relu", 'f="1"', "g="]
    assert read_options(texts) == {
        "a": 1, "b": 0.5, "c": True, "d": [1, 2], "e": "relu", "f": "1", "g": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": NAME}, f"--model {NAME} is a class of your own: name the folder"),
        ({"model": "forest"}, "--model is 'forest': allowed is one of auto, network"),
        ({"options": {"width": 1}}, "--option width is of a model of your own"),
        ({"code": Path()}, "--model is 'auto': with --code it names a module and a class"),
        ({"code": Path(), "model": NAME, "width": 8}, "--width 8 is of Falaj's own models"),
    ],
)
def test_a_model_and_its_code_go_together(given: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        check(Requested(**given))
    assert words in str(caught.value)


def test_the_command_names_code_and_says_what_is_wrong(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["code", "--code", str(folder), "--model", NAME]
    assert command.main(arguments) == 0
    assert read_folder(folder).digest in capsys.readouterr().out
    (folder / "mine" / "network.py").unlink()
    assert command.main(arguments) == 2
    assert capsys.readouterr().err.startswith(f"error: there is no Python file in {folder}")
