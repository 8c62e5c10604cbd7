"""The charts that this machine has: a folder of archives and folders, by name and version."""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.engine.errors import EngineError
from falaj.engine.folders import cache_home
from falaj.sandbox.charts.texts import read_mapping

CHARTS_VARIABLE: Final = "FALAJ_CHARTS"
"""The folder of charts; ``charts`` in Falaj's cache by default."""

_URL: Final = re.compile(r"^(oci|https?)://")
_VERSION: Final = re.compile(r"^v?\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$")
_ARCHIVE: Final = ".tgz"


@dataclass(frozen=True)
class Chart:
    """A chart that is there."""

    name: str
    version: str
    path: Path


def folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where charts are looked for."""
    given = os.environ if environ is None else environ
    named = given.get(CHARTS_VARIABLE)
    return Path(named).expanduser().absolute() if named else cache_home(given) / "charts"


def short_name(reference: str) -> str:
    """A chart's name from what a program gives: a name, ``repository/name``, or an address."""
    last = reference.rstrip("/").rpartition("/")[2]
    if last.endswith(_ARCHIVE):
        return last.removesuffix(_ARCHIVE).rpartition("-")[0] or last.removesuffix(_ARCHIVE)
    return last.partition("@")[0].partition(":")[0]


def find(reference: str, version: str, charts: Path) -> Chart | None:
    """A chart by what a program says of it; None where this machine hasn't got it.

    A path of an archive or a folder is used as it is. Without a version the newest is taken.

    Raises:
        EngineError: what is there is no chart.
    """
    given = Path(reference).expanduser()
    if not _URL.match(reference) and given.exists() and ("/" in reference or given.is_file()):
        return described(given)
    name = short_name(reference)
    if reference.endswith(_ARCHIVE) and not version:
        version = reference.rpartition("/")[2].removesuffix(_ARCHIVE)[len(name) + 1 :]
    known = {each.version.removeprefix("v"): each for each in listed(charts) if each.name == name}
    if version:
        return known.get(version.removeprefix("v"))
    newest = max(known, key=_order, default=None)
    return None if newest is None else known[newest]


def listed(charts: Path) -> list[Chart]:
    """Every chart in the folder, by the names of its entries; other things there are ignored."""
    found: list[Chart] = []
    for path in sorted(charts.iterdir()) if charts.is_dir() else ():
        stem = path.name.removesuffix(_ARCHIVE)
        if path.is_dir() or path.name.endswith(_ARCHIVE):
            name, version = _split(stem)
            if version:
                found.append(Chart(name, version, path))
    return found


def described(path: Path) -> Chart:
    """The chart in an archive or a folder. Raises EngineError where there is none."""
    about = metadata(path)
    return Chart(str(about["name"]), str(about.get("version", "")), path.absolute())


def metadata(path: Path) -> dict[str, Any]:
    """What a chart says of itself (``Chart.yaml``). Raises EngineError where it says nothing."""
    where = f"the chart {path}"
    try:
        if path.is_dir():
            text = (path / "Chart.yaml").read_text(encoding="utf-8")
        else:
            with tarfile.open(path) as archive:
                own = min(
                    (n for n in archive.getnames() if n.endswith("/Chart.yaml")),
                    key=lambda n: n.count("/"),
                )
                member = archive.extractfile(own)
                text = member.read().decode("utf-8") if member else ""
    except (OSError, tarfile.TarError, ValueError) as error:
        raise EngineError(f"{where} can't be read: {error}") from error
    about = read_mapping(text, f"Chart.yaml of {where}")
    if not about.get("name"):
        raise EngineError(f"Chart.yaml of {where} names no chart")
    return about


def missing_dependencies(path: Path) -> list[tuple[str, str]]:
    """Name and version of the charts that a chart needs and doesn't have in itself."""
    wanted = [
        (str(each.get("name")), str(each.get("version", "")))
        for each in metadata(path).get("dependencies") or []
        if not str(each.get("repository", "")).startswith("file://")
    ]
    inside = {_split(name.removesuffix(_ARCHIVE))[0] for name in _contained(path)}
    return [each for each in wanted if each[0] not in inside]


def _contained(path: Path) -> set[str]:
    """Names of what lies in a chart's own ``charts`` folder."""
    if path.is_dir():
        below = path / "charts"
        return {each.name for each in below.iterdir()} if below.is_dir() else set()
    with tarfile.open(path) as archive:
        parts = [name.split("/") for name in archive.getnames()]
    return {each[2] for each in parts if len(each) > 2 and each[1] == "charts"}


def _split(stem: str) -> tuple[str, str]:
    """``name-1.2.3`` in its two parts; a name alone has no version."""
    for at, each in enumerate(stem):
        if each == "-" and _VERSION.match(stem[at + 1 :]):
            return stem[:at], stem[at + 1 :]
    return stem, ""


def _order(version: str) -> tuple[Any, ...]:
    """Versions in their order; one before its release is less than it."""
    core, _, rest = version.partition("+")[0].partition("-")
    return (*(int(part) for part in core.split(".")), not rest, rest)
