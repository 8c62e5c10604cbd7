"""Last step of a build: compiled files without times, and the interpreter under one name.

Runs inside the build with nothing but the standard library: ``finish.py FOLDER INTERPRETER``, the
latter the path of the interpreter in the base that the image runs on.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys
from pathlib import Path


def _compile(folder: Path, part: Path, quiet: int) -> bool:
    """Whether all modules of a part could be compiled.

    By the source's hash, not its time, and never looked at again: the tree is read-only.
    """
    return bool(
        compileall.compile_dir(
            str(part),
            quiet=quiet,
            force=True,
            workers=1,
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            stripdir=str(folder),
            prependdir="/opt/falaj",
        )
    )


def main(folder: Path, interpreter: str) -> int:
    """Finish the tree below ``folder``; returns the exit status."""
    # Scripts of wheels name the build's interpreter, and nobody calls them: `python -m` is used.
    shutil.rmtree(folder / "lib" / "bin", ignore_errors=True)
    # Wheels have modules in the language of later interpreters, which nothing here loads.
    _compile(folder, folder / "lib", quiet=2)
    compiled = _compile(folder, folder / "app", quiet=1)
    link = folder / "bin"
    link.mkdir(exist_ok=True)
    (link / "python3").symlink_to(interpreter)
    (link / "python").symlink_to("python3")
    return 0 if compiled else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2]))
