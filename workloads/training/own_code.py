"""A team's own code: which files it is, what names it, and how it travels with a run.

Nothing of it is imported here: what is wrong with a folder, a module or a class is seen without
running any of it, before torch is loaded.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import io
import json
import math
import re
import stat
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path, PurePosixPath
from typing import Any, Final

from falaj.workloads.documents import is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_bytes, reading_errors
from falaj.workloads.surrogates import half_of_pair
from falaj.workloads.training import own_packages

ARCHIVE: Final = "code.zip"
"""The code's name beside a run's model."""

MOST_FILES: Final = 500
MOST_BYTES: Final = 8 << 20
"""Of code alone: beyond, a folder of something else was named, such as an environment."""

MOST_OPTIONS: Final = 100
MOST_TEXT: Final = 1_000
ABOVE_WHOLE: Final = 2**53
"""From there on a whole number is rounded on its way through a stack: all of its are floats."""

_ENDING: Final = ".py"
_LEFT_OUT: Final = frozenset({"__pycache__"})
CLASS_NAME: Final = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
)
OPTION_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
OPTION_FORM: Final = "letters, digits and '_', first no digit"
_FORM: Final = "a module and a class in it, as mine.network:Network"
_FALAJ: Final = "falaj"
_TIME: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest that a ZIP archive knows: the same code is the same bytes."""
_SHOWN: Final = 12
_MOST_SAID: Final = 100
_READABLE: Final = (stat.S_IFREG | 0o644) << 16
_UNIX: Final = 3


@dataclass(frozen=True)
class OwnModel:
    """Which class a model is, and what it is made with.

    Attributes:
        name: ``package.module:Class``.
        options: what the class is given beside the data's shape, by name.
        code: digest of the code that the class is in.
    """

    name: str
    options: Mapping[str, Any]
    code: str

    @property
    def module(self) -> str:
        """The module that the class is in."""
        return self.name.partition(":")[0]

    @property
    def class_name(self) -> str:
        """The class."""
        return self.name.partition(":")[2]


@dataclass(frozen=True)
class OwnCode:
    """The files of a folder that are code, and what says which packages it needs.

    Attributes:
        files: content by path below the folder, in the order of the paths.
    """

    files: Mapping[str, bytes]

    @property
    def digest(self) -> str:
        """SHA-256 over names and contents."""
        state = hashlib.sha256()
        for path, content in self.files.items():
            state.update(f"{path} {len(content)}\n".encode() + content)
        return state.hexdigest()

    @property
    def roots(self) -> set[str]:
        """The names that it is imported by."""
        return {PurePosixPath(path).parts[0].removesuffix(_ENDING) for path in self._modules}

    @property
    def requirements(self) -> bytes | None:
        """The file that pins the packages that it needs; None: it has none."""
        return self.files.get(own_packages.FILE)

    @property
    def _modules(self) -> list[str]:
        return [path for path in self.files if path.endswith(_ENDING)]

    @property
    def modules(self) -> list[str]:
        """The modules in it, as they are imported."""
        return [
            path.removesuffix(_ENDING).removesuffix("/__init__").replace("/", ".")
            for path in self._modules
        ]

    def place(self, module: str) -> str | None:
        """Return the path of a module's file; None where there is none."""
        stem = module.replace(".", "/")
        return next(
            (each for each in (f"{stem}/__init__{_ENDING}", stem + _ENDING) if each in self.files),
            None,
        )

    def archive(self) -> bytes:
        """Return it as a ZIP archive; the same code gives the same bytes."""
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
            for path, content in self.files.items():
                entry = zipfile.ZipInfo(path, _TIME)
                entry.external_attr, entry.create_system = _READABLE, _UNIX
                packed.writestr(entry, content)
        return buffer.getvalue()


def unpack(archive: bytes, digest: str, path: Path) -> OwnCode:
    """Return what `OwnCode.archive` wrote.

    Args:
        archive: its bytes.
        digest: of the code.
        path: the file that it was read from, for the error.

    Raises:
        WorkloadError: it is damaged, or other code.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            entries = packed.infolist()
            if (
                len(entries) <= MOST_FILES
                and sum(each.file_size for each in entries) <= MOST_BYTES
                and all(map(_is_ours, entries))
            ):
                code = OwnCode({each.filename: packed.read(each) for each in entries})
                if code.digest == digest:
                    return code
    except (
        zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError, EOFError,
        OSError, ValueError,
    ):  # fmt: skip
        pass
    raise WorkloadError(
        f"{path} isn't the code that the model was trained with (digest {digest[:16]}): train it "
        "again"
    )


def _is_ours(entry: zipfile.ZipInfo) -> bool:
    """Whether `OwnCode.archive` may have written it.

    Other names could hold parts of what the digest is of: two codes would have the same one.
    """
    stem = entry.filename.removesuffix(_ENDING)
    is_code = stem != entry.filename and all(part.isidentifier() for part in stem.split("/"))
    is_named = is_code or entry.filename == own_packages.FILE
    return entry.compress_type == zipfile.ZIP_STORED and is_named


def read_folder(folder: Path) -> OwnCode:
    """Return the code in a folder: its Python files, those in folders below as well.

    Files and folders whose names begin with a dot, ``__pycache__``, and what no program could
    import by its name are left out. The folder's own `own_packages.FILE` belongs to it.

    Raises:
        WorkloadError: there is no such folder, no code in it or too much, a link in it leads
            elsewhere, a file can't be read, a name would hide that of another module, or a
            package isn't pinned or is in Falaj's environment in another version.
    """
    with reading_errors(folder, "the folder of the model's code"):
        is_there = folder.is_dir()
    if not is_there:
        found = "it is a file" if folder.exists() else "there is none"
        raise WorkloadError(
            f"no folder {folder}: {found}; give the folder that the model's code is in"
        )
    files: dict[str, bytes] = {}
    size = 0
    for path in _walk(folder, folder):
        with reading_errors(path, "the model's code"):
            size += path.stat().st_size  # before it is in the memory
        if len(files) == MOST_FILES or size > MOST_BYTES:
            raise WorkloadError(
                f"{folder} has more than {MOST_FILES} Python files or {MOST_BYTES >> 20} MiB of "
                "them; give a folder that holds the model's code alone"
            )
        files[path.relative_to(folder).as_posix()] = read_bytes(path, "the model's code")
    code = OwnCode(dict(sorted(files.items())))
    if not code.roots:
        raise WorkloadError(
            f"there is no Python file in {folder}; give the folder that the model's code is in"
        )
    for root in sorted(code.roots):
        _refuse_hiding(root, folder)
    if code.requirements is not None:
        own_packages.lacking(code.requirements, str(folder / own_packages.FILE))
    return code


def provide_packages(folder: Path) -> None:
    """Install the packages that the code in a folder needs, if they aren't there yet.

    Raises:
        WorkloadError: as `read_folder`; or they can't be had.
    """
    code = read_folder(folder)
    if code.requirements is not None:
        own_packages.provide(code.requirements, str(folder / own_packages.FILE))


def _walk(folder: Path, top: Path) -> Iterator[Path]:
    with reading_errors(folder, "the folder of the model's code"):
        entries = sorted(folder.iterdir())
    for path in entries:
        if path.name.startswith(".") or path.name in _LEFT_OUT:
            continue
        with reading_errors(path, "the model's code"):
            kind = path.lstat().st_mode
        is_code = path.suffix == _ENDING and path.stem.isidentifier()
        is_code |= path == top / own_packages.FILE
        if stat.S_ISLNK(kind) and (is_code or (path.name.isidentifier() and path.is_dir())):
            raise WorkloadError(
                f"{path} is a symbolic link to {path.readlink()}: code travels with the model; "
                "put the file itself there, or link from outside of the folder"
            )
        if stat.S_ISDIR(kind) and path.name.isidentifier():
            yield from _walk(path, top)
        elif is_code and stat.S_ISREG(kind):
            yield path
        elif is_code:
            raise WorkloadError(f"{path} is no file: take it out of the folder of code")


def _refuse_hiding(root: str, folder: Path) -> None:
    whose = ""
    if root in sys.stdlib_module_names:
        whose = "a module of Python's own"
    elif root == _FALAJ:
        whose = "Falaj's own package"
    elif _is_installed(root):
        whose = "a package that is installed here"
    if whose:
        raise WorkloadError(
            f"{root!r} in {folder} is the name of {whose}, which it would hide; give it another "
            "name"
        )


def _is_installed(root: str) -> bool:
    """Whether a name is taken by what this Python's environment has."""
    homes = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return PathFinder.find_spec(root, homes) is not None


def find(code: OwnCode, name: str) -> None:
    """Refuse a class that the code doesn't have, as far as that is seen without running it.

    Args:
        code: of the folder.
        name: ``package.module:Class``.

    Raises:
        WorkloadError: the name isn't of that form, or there is no such module or class, or the
            module is no Python.
    """
    check_name(name)
    module, _, wanted = name.partition(":")
    place = code.place(module)
    if place is None:
        known = sorted(code.modules)
        near = difflib.get_close_matches(module, known, 1)
        meant = f"; did you mean {near[0]}" if near else ""
        raise WorkloadError(
            f"the model {name}: the code has no module {module!r}{meant}; it has {_listed(known)}"
        )
    try:
        tree = ast.parse(code.files[place], place)
    except (SyntaxError, ValueError) as error:
        raise WorkloadError(
            f"the model's code can't be read: {syntax_place(error, place)}"
        ) from None
    except (MemoryError, RecursionError):  # how Python says that it is nested too deeply
        raise WorkloadError(
            f"the model's code can't be read: {place} has an expression that is nested too deeply"
        ) from None
    bound = set(_bound(tree))
    if wanted not in bound and "*" not in bound:
        classes = [each.name for each in tree.body if isinstance(each, ast.ClassDef)]
        raise WorkloadError(
            f"the model {name}: {place} has no class {wanted!r}; it has {_listed(classes)}"
        )


def check_name(name: str) -> None:
    """Refuse what doesn't name a class.

    Raises:
        WorkloadError: says what does.
    """
    if not CLASS_NAME.fullmatch(name):
        raise WorkloadError(f"--model is {name!r}: with --code it names {_FORM}")


def syntax_place(error: SyntaxError | ValueError, place: str) -> str:
    """Where and what a module's mistake is, in a line."""
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{place}{line}: {message}"


def read_options(texts: Sequence[str]) -> dict[str, Any]:
    """Return the options that a command line gives.

    Args:
        texts: each ``NAME=VALUE``, whose value is JSON; what isn't is a text.

    Raises:
        WorkloadError: a text isn't of that form, or see `check_options`.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise WorkloadError(f"--option {text!r}: allowed is NAME=VALUE, as width=64")
        if name in found:
            raise WorkloadError(f"--option names {name} twice: give each option once")
        try:
            found[name] = json.loads(value)
        except (ValueError, RecursionError):
            found[name] = value
    check_options(found)
    return found


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that aren't plain values.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    if len(options) > MOST_OPTIONS:
        raise WorkloadError(f"{len(options)} options of the model: allowed are {MOST_OPTIONS}")
    for name, value in options.items():
        if not OPTION_NAME.fullmatch(name):
            raise WorkloadError(f"the model's option {name!r}: allowed are {OPTION_FORM}")
        items = value if is_sequence(value) else [value]
        if not all(_is_plain(each) for each in items):
            raise WorkloadError(
                f"the model's option {name} is {_shortened(value)}: allowed are numbers (whole "
                f"ones below 2^53), texts of up to {MOST_TEXT:,} characters, true and false, and "
                "lists of these"
            )


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= MOST_TEXT and half_of_pair(value) is None
    if isinstance(value, int):
        return abs(value) < ABOVE_WHOLE
    return isinstance(value, float) and math.isfinite(value)


def _shortened(value: object) -> str:
    try:
        text = ascii(value)
    except ValueError:
        return "a number of more digits than Python writes"
    return text if len(text) <= _MOST_SAID else text[:_MOST_SAID] + " …"


def _bound(tree: ast.Module) -> Iterator[str]:
    """The names that a module binds, wherever in it: a class may be made by a condition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).partition(".")[0]
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return (shown + (" …" if len(names) > _SHOWN else "")) or "none"
