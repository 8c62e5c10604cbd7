"""Last step of a build: compiled files without times, and the interpreter under the one name.

Runs inside the build with nothing but the standard library: ``finish.py FOLDER``.
"""

from __future__ import annotations

import compileall
import py_compile
import shutil
import sys
from pathlib import Path

#: Where Debian's and the official images' interpreters are; the base that runs has one of them.
INTERPRETERS = ("/usr/local/bin/python3", "/usr/bin/python3")


def main(folder: Path) -> int:
    """Finish the tree below ``folder``; returns the exit status."""
    # Scripts of wheels name the build's interpreter, and nobody calls them: `python -m` is used.
    shutil.rmtree(folder / "lib" / "bin", ignore_errors=True)
    # By the source's hash, not its time, and never looked at again: the tree is read-only.
    compiled = compileall.compile_dir(
        str(folder),
        quiet=1,
        force=True,
        workers=1,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        stripdir=str(folder),
        prependdir=str(folder),
    )
    link = folder / "bin"
    link.mkdir(exist_ok=True)
    # A link for each name: which of both targets is there depends on the base that runs.
    (link / "python").symlink_to("python3")
    (link / "python3").symlink_to(sys.argv[2] if len(sys.argv) > 2 else INTERPRETERS[1])
    return 0 if compiled else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
