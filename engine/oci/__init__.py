"""crane and helm: the ones on the PATH, else built once from the Go module beside this file.

crane copies images without changing them (https://github.com/google/go-containerregistry); helm
fetches charts from repositories that are no registries (https://helm.sh).
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from typing import Final, Literal

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import cache_home, exclusive
from falaj.engine.gobuild import GoModule, compile_commands
from falaj.engine.progress import Report, to_stderr
from falaj.engine.versions import pins

Tool = Literal["crane", "helm"]
PACKAGES: Final[dict[Tool, str]] = {
    "crane": "github.com/google/go-containerregistry/cmd/crane",
    "helm": "helm.sh/helm/v3/cmd/helm",
}
MODULE: Final = Path(__file__).with_name("gomodule")


def ensure(tool: Tool, report: Report = to_stderr) -> Path:
    """The tool's path; builds it where the machine has none, once for each version.

    Args:
        tool: ``crane`` or ``helm``.
        report: gets lines about a build.

    Raises:
        EngineError: there is none on the PATH and it can't be built, with what to do.
    """
    if found := shutil.which(tool):
        return Path(found)
    folder = cache_home() / "oci" / _key()
    kept = folder / tool
    if kept.is_file():
        return kept
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with exclusive(folder / f"{tool}.lock", report, tool):
            if not kept.is_file():  # another run may have built it meanwhile
                _build(tool, kept, report)
    except OSError as error:
        raise explain_os_error(error, f"building {tool} into {folder}") from error
    return kept


def _key() -> str:
    """Names what is built: a change of a pinned version gives another folder."""
    content = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    return hashlib.sha256(content).hexdigest()[:16]


def _build(tool: Tool, target: Path, report: Report) -> None:
    """Build into another folder first: what lies under the right name is complete."""
    module = GoModule(MODULE, tool, pins().go_minimum)
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=target.parent) as folder:
        try:
            compile_commands(module, {tool: PACKAGES[tool]}, Path(folder), report)
        except EngineError as error:
            raise EngineError(
                f"{tool} is not on the PATH, and can't be built: {error}\n"
                f"install {tool} on the PATH instead"
            ) from None
        (Path(folder) / tool).replace(target)
