"""Have crane and helm: the ones on the PATH, else built once from the Go module beside this file.

crane copies images without changing them (https://github.com/google/go-containerregistry); helm
fetches charts from repositories that are no registries (https://helm.sh).
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock

from engine.build import find_go
from engine.errors import EngineError, explain_os_error
from engine.folders import cache_home
from engine.guard import guarded
from engine.progress import Report, step, to_stderr

Tool = Literal["crane", "helm"]
PACKAGES: Final[dict[Tool, str]] = {
    "crane": "github.com/google/go-containerregistry/cmd/crane",
    "helm": "helm.sh/helm/v3/cmd/helm",
}
MODULE: Final = Path(__file__).with_name("gomodule")
_FILES: Final = ("go.mod", "go.sum")
#: helm with the Kubernetes client takes three minutes on two slow cores.
BUILD_SECONDS: Final = 1800


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
    home = cache_home() / "oci" / _key()
    kept = home / tool
    if kept.is_file():
        return kept
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / f"{tool}.lock"):
            if not kept.is_file():  # another run may have built it meanwhile
                _build(tool, kept, report)
    except OSError as error:
        raise explain_os_error(error, f"building {tool} into {home}") from error
    return kept


def _key() -> str:
    """Names what is built: a change of a pinned version gives another folder."""
    content = b"".join((MODULE / name).read_bytes() for name in _FILES)
    return hashlib.sha256(content).hexdigest()[:16]


def _build(tool: Tool, target: Path, report: Report) -> None:
    try:
        go, _ = find_go()
    except EngineError as error:
        raise EngineError(f"{tool} is not on the PATH, and can't be built: {error}") from None
    with tempfile.TemporaryDirectory(prefix="unfinished-", dir=target.parent) as folder:
        work = Path(folder)
        # Go may want to write beside go.mod; our source folder may be read-only or shared.
        for name in _FILES:
            shutil.copyfile(MODULE / name, work / name)
        command = [
            *(str(go), "build", "-mod=readonly", "-buildvcs=false", "-trimpath"),
            *("-ldflags", "-s -w", "-o", str(work / tool), PACKAGES[tool]),
        ]
        with step(report, f"building {tool} from its Go module"):
            try:
                subprocess.run(
                    guarded(command), cwd=work, env={**os.environ, "GOWORK": "off"}, check=True,
                    capture_output=True, text=True, timeout=BUILD_SECONDS,
                )  # fmt: skip
            except subprocess.CalledProcessError as error:
                said = "\n".join(str(error.stderr).strip().splitlines()[-8:])
                raise EngineError(
                    f"{tool} could not be built:\n{said}\n"
                    f"install {tool} on the PATH instead, or set GOPROXY to a module proxy that "
                    "this machine reaches"
                ) from None
            except subprocess.TimeoutExpired:
                raise EngineError(
                    f"building {tool} took longer than {BUILD_SECONDS // 60} minutes; "
                    f"install {tool} on the PATH instead"
                ) from None
        (work / tool).replace(target)
