"""Environments of other programs' own, which tests that ask for them make once, from locks.

They lie in the user's cache, by the digest of their lock.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from falaj.engine.files import cache_home

REQUIREMENTS = Path(__file__).parents[1] / "requirements"
SECONDS = 1200.0


def environment(
    name: str,
    *,
    python: Path | None = None,
    finish: Callable[[Path], None] = lambda _: None,
    seconds: float = SECONDS,
) -> Path:
    """Return the folder of an environment with what ``requirements/NAME.txt`` pins.

    Args:
        name: of it.
        python: its interpreter. Default: this one's version.
        finish: what is done with a new one's folder.
        seconds: that installing may take.
    """
    pinned = REQUIREMENTS / f"{name}.txt"
    folder = cache_home() / name / hashlib.sha256(pinned.read_bytes()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "complete").exists():
            uv = Path(sys.prefix) / "bin" / "uv"
            chosen = [] if python is None else ["--python", python]
            subprocess.run([uv, "venv", "-q", "--clear", *chosen, folder], check=True)
            subprocess.run(
                # A lock names all that is needed, and what is left out of it stays out.
                [uv, "pip", "install", "-q", "--no-deps", "--require-hashes",
                 "--only-binary", ":all:", "--python", folder / "bin" / "python", "-r", pinned],
                check=True, timeout=seconds,
            )  # fmt: skip
            finish(folder)
            (folder / "complete").touch()
    return folder
