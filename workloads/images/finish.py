"""Last steps of a build: compiled files without times, and the interpreter under one name.

Runs inside the build with nothing but the standard library: ``finish.py wheels FOLDER
INTERPRETER`` when the wheels are installed, the last the path of the interpreter in the base that
the image runs on, and ``finish.py code FOLDER`` when our code is there. What a change of the code
leaves alone is so made by steps before it.
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


def wheels(folder: Path, interpreter: str) -> int:
    """Finish the wheels below ``folder``, and name the interpreter; returns the exit status."""
    (folder / "lib").mkdir(exist_ok=True)  # where the image gets those of one built before
    # Scripts of wheels name the build's interpreter, and nobody calls them: `python -m` is used.
    shutil.rmtree(folder / "lib" / "bin", ignore_errors=True)
    # Wheels have modules in the language of later interpreters, which nothing here loads.
    _compile(folder, folder / "lib", quiet=2)
    link = folder / "bin"
    link.mkdir(exist_ok=True)
    (link / "python3").symlink_to(interpreter)
    (link / "python").symlink_to("python3")
    return 0


def code(folder: Path) -> int:
    """Finish our code below ``folder``; returns the exit status."""
    return 0 if _compile(folder, folder / "app", quiet=1) else 1


if __name__ == "__main__":
    step, at, *more = sys.argv[1:]
    sys.exit(wheels(Path(at), *more) if step == "wheels" else code(Path(at), *more))
