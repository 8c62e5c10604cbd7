"""Have a Pulumi engine: an installed one, else the vendor's release, else one built here."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from falaj.engine import launchers
from falaj.engine.build import build_engine
from falaj.engine.download import download_engine
from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.exclusive import exclusive
from falaj.engine.folders import cache_home
from falaj.engine.progress import Report, to_stderr
from falaj.engine.versions import Version, pins

QUESTION_SECONDS = 60
_TEMPORARY = "unfinished-"

Source = Literal["installed", "downloaded", "built"]


@dataclass(frozen=True)
class Engine:
    """A usable engine.

    `language_host` tells whose Python language host it will start; `bin_dirs` is what has to come
    first on the PATH for `pulumi` to be this engine with that host.
    """

    path: Path
    version: str
    source: Source
    language_host: Literal["vendor", "falaj"]
    bin_dirs: list[Path] = field(default_factory=list[Path])


def ensure_engine(report: Report = to_stderr) -> Engine:
    """Return an engine that is new enough, getting one first if need be.

    In this order: `pulumi` on the PATH, one that was got before, a download, a build. Two calls at
    once get one engine; an interrupted one leaves nothing that a later one could mistake for an
    engine. Raises EngineError when no way works, with the reason of each.
    """
    if installed := installed_engine(report):
        return _with_language_host(installed[0], "installed", installed[1])
    home = engine_home()
    if kept := kept_engine(home):
        return _with_language_host(*kept)
    try:
        with exclusive(home.parent / f"{home.name}.lock", report, "the engine"):
            # Another run may have got it meanwhile.
            found = kept_engine(home) or _get(home, report)
    except OSError as error:
        raise explain_os_error(error, f"getting the engine into {home.parent}") from error
    return _with_language_host(*found)


def engine_home() -> Path:
    """The folder in the user's cache that holds the pinned engine, keyed by its version."""
    return cache_home() / "engine" / f"v{pins().version}"


def engine_version(path: Path) -> Version:
    """What `path version` answers. Raises EngineError when it answers nothing sensible."""
    try:
        answer = subprocess.run(
            [str(path), "version"],
            capture_output=True,
            text=True,
            timeout=QUESTION_SECONDS,
            check=True,
            env={**os.environ, "PULUMI_SKIP_UPDATE_CHECK": "true"},
        )
        return Version.parse(answer.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise EngineError(f"{path} does not tell its version: {error}") from error


def installed_engine(report: Report) -> tuple[Path, Version] | None:
    """`pulumi` on the PATH when it is new enough and not one of ours."""
    ours = cache_home().resolve()
    for folder in os.get_exec_path():
        found = shutil.which("pulumi", path=folder)
        if found is None or Path(found).resolve().is_relative_to(ours):
            continue
        path = Path(found).absolute()
        try:
            version = engine_version(path)
        except EngineError as error:
            report(f"{error}; looking for another engine")
            continue
        if version.at_least(pins().minimum):
            return path, version
        report(f"{path} is version {version}, older than {pins().minimum}; not using it")
    return None


def kept_engine(home: Path) -> tuple[Path, Source] | None:
    """The engine that an earlier run put into `home`, which appears there whole or not at all."""
    path, note = home / "bin" / "pulumi", home / "source"
    if not (os.access(path, os.X_OK) and note.is_file()):
        return None
    source = note.read_text(encoding="utf-8").strip()
    return path, "downloaded" if source == "downloaded" else "built"


def _get(home: Path, report: Report) -> tuple[Path, Source]:
    """Download or build into a temporary folder, try the result, and move it into place."""
    for left in home.parent.glob(f"{_TEMPORARY}*"):  # we hold the lock: nobody uses it
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(home, ignore_errors=True)  # incomplete, or `kept_engine` would have taken it
    reasons: list[str] = []
    ways: list[tuple[Source, Callable[[Path, Report], None]]] = [
        ("downloaded", download_engine),
        ("built", lambda folder, report: build_engine(folder / "pulumi", report)),
    ]
    for source, way in ways:
        work = Path(tempfile.mkdtemp(prefix=_TEMPORARY, dir=home.parent))
        try:
            (work / "bin").mkdir()
            way(work / "bin", report)
            version = engine_version(work / "bin" / "pulumi")
            if version != pins().version:
                raise EngineError(f"got pulumi {version} where {pins().version} was expected")
            (work / "source").write_text(f"{source}\n", encoding="utf-8")
            work.chmod(0o755)
            work.rename(home)
        except EngineError as error:
            reasons.append(f"{'download' if source == 'downloaded' else 'build'}: {error}")
            if source == "downloaded":
                report(f"{error}; building the engine instead")
        else:
            return home / "bin" / "pulumi", source
        finally:
            shutil.rmtree(work, ignore_errors=True)
    raise EngineError(
        f"no Pulumi engine could be had. Install pulumi {pins().minimum} or newer "
        "(https://www.pulumi.com/docs/install/), or see to one of these:\n  "
        + "\n  ".join(reasons)
    )


def _with_language_host(path: Path, source: Source, found: Version | None = None) -> Engine:
    version = str(found or pins().version)  # what we got is what is pinned
    if launchers.vendor_host(path) is not None:
        return Engine(path, version, source, "vendor", [path.parent])
    # Beside an engine of ours the engine finds it without a warning; we do not write elsewhere.
    folder = path.parent if source != "installed" else cache_home() / "languagehost"
    launchers.install(folder)
    return Engine(path, version, source, "falaj", list(dict.fromkeys([path.parent, folder])))
