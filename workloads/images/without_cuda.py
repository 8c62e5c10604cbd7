"""Lets PyTorch's usual build run where no GPU is, without NVIDIA's libraries, which are gigabytes.

Runs inside the build with nothing but the standard library: ``without_cuda.py FOLDER``, the folder
that the wheels were installed in. PyTorch's build for processors alone isn't in the usual index.
The usual one asks the loader for libraries of CUDA when it starts, and without a GPU works without
them. So each that is asked for and isn't there is made: it has the names that are asked of it, and
each of its functions returns 100, CUDA's "no device" (``cudaErrorNoDevice``) and an error in the
others.

Files: elf(5), and for versions of names
https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/symversion.html
"""

from __future__ import annotations

import struct
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: Beginnings of the names of NVIDIA's libraries; what else isn't there is the system's.
NVIDIA: Final = ("libcu", "libnv", "libnccl")
#: The driver's: who finds one takes it for a GPU's. Nothing asks for it at the start.
_DRIVER: Final = "libcuda.so.1"
_MAGIC: Final = b"\x7fELF\x02\x01"
"""64 bits, little-endian."""
#: Returns 100, by machine: ``mov eax, 100; ret`` on x86-64, ``mov w0, #100; ret`` on arm64.
_CODE: Final = {62: b"\xb8\x64\x00\x00\x00\xc3", 183: b"\x80\x0c\x80\x52\xc0\x03\x5f\xd6"}
_PAGE: Final = 65536
"""The largest that a kernel for these machines has."""

# Types of sections and segments, and tags of dynamic entries.
_SECTION_DYNAMIC, _SECTION_SYMBOLS = 6, 11
_SECTION_NEEDS, _SECTION_VERSIONS = 0x6FFFFFFE, 0x6FFFFFFF
_LOAD, _DYNAMIC, _STACK = 1, 2, 0x6474E551
_NEEDED, _HASH, _STRTAB, _SYMTAB, _STRSZ, _SYMENT, _SONAME = 1, 4, 5, 6, 10, 11, 14
_VERSYM, _VERDEF, _VERDEFNUM = 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SEGMENT: Final = struct.Struct("<IIQQQQQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")


@dataclass(frozen=True)
class Name:
    """A name that a library asks for."""

    name: str
    version: str = ""
    library: str = ""
    """Which it is asked of; names without a version are asked of all."""


@dataclass(frozen=True)
class Library:
    """What a shared library says of itself."""

    machine: int
    needed: tuple[str, ...]
    defined: frozenset[str]
    asked: frozenset[Name]


def read(data: bytes) -> Library | None:
    """Read a shared library; None where it is another kind of file."""
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    header = _HEADER.unpack_from(data)
    start, size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, start + size * each) for each in range(count)]
    by_type: dict[int, tuple[int, ...]] = {section[1]: section for section in sections}
    symbols = by_type.get(_SECTION_SYMBOLS)
    if symbols is None:
        return None
    texts: int = sections[symbols[6]][4]

    def text(index: int) -> str:
        return data[texts + index : data.index(b"\0", texts + index)].decode()

    needed = [
        text(value)
        for tag, value in struct.iter_unpack("<qQ", _content(data, by_type[_SECTION_DYNAMIC]))
        if tag == _NEEDED
    ]
    needs = by_type.get(_SECTION_NEEDS)
    known = {at: (text(version), text(file)) for at, version, file in _needs(data, needs)}
    versions: Sequence[int] = ()
    if _SECTION_VERSIONS in by_type:
        versions = [each for (each,) in struct.iter_unpack("<H", _content(
            data, by_type[_SECTION_VERSIONS]))]  # fmt: skip
    defined: set[str] = set()
    asked: set[Name] = set()
    for place, (name, info, _, section, _, _) in enumerate(
        _SYMBOL.iter_unpack(_content(data, symbols))
    ):
        if info >> 4 not in (1, 2) or not name:  # of this library alone
            continue
        if section:
            defined.add(text(name))
        else:
            of = known.get(versions[place] & 0x7FFF) if versions else None
            asked.add(Name(text(name), *(of or ())))
    return Library(header[2], tuple(needed), frozenset(defined), frozenset(asked))


def _content(data: bytes, section: Sequence[int]) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _needs(data: bytes, section: Sequence[int] | None) -> Iterator[tuple[int, int, int]]:
    """Of each version that is asked for: its number, and where its text and its library's are."""
    if section is None:
        return
    at = section[4]
    for _ in range(section[7]):
        _, count, file, versions, following = struct.unpack_from("<HHIII", data, at)
        each = at + versions
        for _ in range(count):
            _, _, number, name, step = struct.unpack_from("<IHHII", data, each)
            yield number, name, file
            each += step
        at += following


def written(name: str, names: Sequence[Name], machine: int) -> bytes:
    """A shared library of that name.

    Args:
        name: its own.
        names: what it has, with their versions.
        machine: of the format's list of machines: 62 for x86-64, 183 for arm64.

    Raises:
        ValueError: nothing is known of the machine.
    """
    if machine not in _CODE:
        raise ValueError(f"machine {machine}; allowed: {', '.join(map(str, _CODE))}")
    texts = bytearray(b"\0")
    places: dict[str, int] = {}

    def text(value: str) -> int:
        if value not in places:
            places[value] = len(texts)
            texts.extend(value.encode() + b"\0")
        return places[value]

    ordered = sorted(set(names), key=lambda each: (each.name, each.version))
    versions = [name, *sorted({each.version for each in ordered if each.version})]
    # One that is called as the library itself has a number of its own, beside the library's.
    numbers = {version: number for number, version in enumerate(versions[1:], 2)}
    own = _definitions(name, versions[1:], numbers, text)

    head = _HEADER.size + 4 * _SEGMENT.size
    code = head
    tables = (code + len(_CODE[machine]) + 7) // 8 * 8
    symbols = bytearray(_SYMBOL.size)
    marks = bytearray(struct.pack("<H", 0))
    for each in ordered:
        # Functions for everybody; the section's number only says that they are here.
        symbols += _SYMBOL.pack(text(each.name), 1 << 4 | 2, 0, 1, code, len(_CODE[machine]))
        marks += struct.pack("<H", numbers[each.version] if each.version else 1)
    hashes = _hash_table([each.name for each in ordered])
    parts: dict[int, bytes] = {
        _SYMTAB: bytes(symbols), _STRTAB: bytes(texts), _HASH: hashes,
        _VERSYM: bytes(marks), _VERDEF: own,
    }  # fmt: skip
    body = bytearray()
    at: dict[int, int] = {}
    for tag, content in parts.items():
        body += bytes(-len(body) % 8)
        at[tag] = tables + len(body)
        body += content
    whole = tables + len(body)
    dynamic = (whole + _PAGE - 1) // _PAGE * _PAGE
    entries = [
        (_SONAME, places[name]), *sorted(at.items()), (_STRSZ, len(texts)),
        (_SYMENT, _SYMBOL.size), (_VERDEFNUM, 1 + len(versions[1:])), (0, 0),
    ]  # fmt: skip
    last = b"".join(struct.pack("<qQ", *each) for each in entries)
    segments = (
        (_LOAD, 5, 0, 0, 0, whole, whole, _PAGE),
        (_LOAD, 6, dynamic, dynamic, dynamic, len(last), len(last), _PAGE),
        (_DYNAMIC, 6, dynamic, dynamic, dynamic, len(last), len(last), 8),
        (_STACK, 6, 0, 0, 0, 0, 0, 16),
    )
    start = _HEADER.pack(
        _MAGIC + b"\x01" + bytes(9), 3, machine, 1, 0, _HEADER.size, 0, 0, _HEADER.size,
        _SEGMENT.size, len(segments), 0, 0, 0,
    )  # fmt: skip
    content = start + b"".join(_SEGMENT.pack(*each) for each in segments) + _CODE[machine]
    content = content.ljust(tables, b"\0") + bytes(body)
    return content.ljust(dynamic, b"\0") + last


def _definitions(
    name: str, versions: Sequence[str], numbers: Mapping[str, int], text: Callable[[str], int]
) -> bytes:
    """The versions that a library has, its own name first."""
    found = bytearray()
    rows = [(1, 1, name), *((0, numbers[each], each) for each in versions)]
    for place, (flags, number, version) in enumerate(rows):
        last = place == len(rows) - 1
        found += struct.pack(
            "<HHHHIII", 1, flags, number, 1, _system_v_hash(version), 20, 0 if last else 28
        )
        found += struct.pack("<II", text(version), 0)
    return bytes(found)


def _hash_table(names: Sequence[str]) -> bytes:
    """One bucket: nobody looks often."""
    chain = [*range(2, len(names) + 1), 0] if names else []
    first = 1 if names else 0
    return struct.pack(f"<II I {1 + len(chain)}I", 1, 1 + len(chain), first, 0, *chain)


def _system_v_hash(name: str) -> int:
    value = 0
    for each in name.encode():
        value = (value << 4) + each
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def complete(folder: Path) -> list[Path]:
    """Make the libraries of NVIDIA's that PyTorch in a folder asks for and that aren't there.

    Returns:
        What was made, beside PyTorch's own.
    """
    target = folder / "torch" / "lib"
    libraries = {
        path.name: found
        for path in sorted((folder / "torch").rglob("*.so*"))
        if (found := read(path.read_bytes())) is not None
    }
    there = {path.name for path in folder.rglob("*.so*")}
    missing = sorted({
        each
        for library in libraries.values()
        for each in library.needed
        if each.startswith(NVIDIA) and each not in {*there, _DRIVER}
    })  # fmt: skip
    defined = frozenset[str]().union(*(each.defined for each in libraries.values()))
    asked: defaultdict[str, set[Name]] = defaultdict(set)
    for library in libraries.values():
        for each in library.asked:
            if each.name not in defined:
                asked[each.library].add(each)
    made: list[Path] = []
    for each in missing:
        machine = next(iter(libraries.values())).machine
        # Names without a version are of the libraries that have none: the first has them all.
        names = [*asked[each], *(asked[""] if each == missing[0] else ())]
        path = target / each
        path.write_bytes(written(each, names, machine))
        made.append(path)
    return made


if __name__ == "__main__":
    for made in complete(Path(sys.argv[1])):
        print(f"{made.name}: {made.stat().st_size} bytes")
