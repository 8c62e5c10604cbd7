"""Bases of images, made of Debian's packages: nothing is asked of a registry abroad.

As the images that Falaj's own are built on elsewhere: without a shell or a package manager what
they run on, with pip what they are built in. No script of a package runs, as in the distroless
images: https://github.com/GoogleContainerTools/distroless
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from falaj.engine import debian
from falaj.engine.controlplane.registry import Image

_LIBRARIES: Final = (
    "libc6", "libgcc-s1", "libstdc++6", "libgomp1", "zlib1g", "libssl3", "libffi8",
    "libsqlite3-0", "libbz2-1.0", "liblzma5", "libexpat1", "libuuid1", "libncursesw6", "libtinfo6",
    "libreadline8", "libdb5.3", "libcrypt1",
)  # fmt: skip
_PYTHON: Final = (
    "base-files", "netbase", "tzdata", "media-types",
    *_LIBRARIES,
    "libpython3.11-minimal", "libpython3.11-stdlib", "python3.11-minimal", "python3-minimal",
)  # fmt: skip
PACKAGES: Final[dict[str, Sequence[str]]] = {
    "base-distroless": _PYTHON,
    "base-build": (
        *_PYTHON, "python3.11", "python3-distutils", "python3-lib2to3", "python3-setuptools",
        "python3-wheel", "python3-pip",
    ),
}  # fmt: skip
"""By what the bill of materials calls the base; of Debian 12, whose Python is 3.11."""
#: What nothing at run time reads: two thirds of the time zones' package stay.
_LEFT_OUT: Final = ("usr/share/doc/", "usr/share/man/", "usr/share/lintian/", "usr/share/info/")
_NOBODY: Final = 65532
_FILES: Final = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\n"
    f"nonroot:x:{_NOBODY}:{_NOBODY}:nonroot:/home/nonroot:/sbin/nologin\n",
    "etc/group": f"root:x:0:\nnonroot:x:{_NOBODY}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}


def image(base: str) -> Image:
    """A base of `PACKAGES`, the same image for the same packages.

    Raises:
        EngineError: packages can't be had.
    """
    return Image.of(layer(base), {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]})


def layer(base: str) -> bytes:
    """The files of a base of `PACKAGES` as an archive, the same bytes for the same packages.

    Raises:
        EngineError: packages can't be had.
    """
    members: dict[str, Path] = {}
    for folder in debian.unpacked(PACKAGES[base]):
        for path in folder.rglob("*"):
            name = path.relative_to(folder).as_posix()
            if not f"{name}/".startswith(_LEFT_OUT):
                members[name] = path
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in sorted({*members, *_FILES, "tmp"}):
            about = tarfile.TarInfo(name)
            if name in _FILES:
                content = _FILES[name].encode()
                about.size, about.mode = len(content), 0o644
                archive.addfile(about, io.BytesIO(content))
                continue
            if name == "tmp":
                about.type, about.mode = tarfile.DIRTYPE, 0o1777
                archive.addfile(about)
                continue
            path = members[name]
            about.mode = path.lstat().st_mode & 0o7777
            if path.is_symlink():
                about.type, about.linkname = tarfile.SYMTYPE, str(path.readlink())
                archive.addfile(about)
            elif path.is_dir():
                about.type = tarfile.DIRTYPE
                archive.addfile(about)
            else:
                about.size = path.stat().st_size
                with path.open("rb") as file:
                    archive.addfile(about, file)
    return buffer.getvalue()
