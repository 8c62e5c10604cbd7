"""Puts charts that lie in Go modules into the folder of charts."""

from __future__ import annotations

import json
import os
import shutil
import string
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.gobuild import find_go
from falaj.sandbox.charts.library import Chart
from falaj.sandbox.charts.texts import read_mapping

_TABLE = Path(__file__).with_name("modules.yaml")
_SECONDS = 600


@dataclass(frozen=True)
class ChartModule:
    """A chart in a Go module."""

    name: str
    module: str
    version: str
    sum: str
    folder: str
    chart: str
    """The version under which the chart is published."""
    values: dict[str, str] = field(default_factory=dict[str, str])


@cache
def known() -> dict[str, ChartModule]:
    """The charts that can be had from Go modules, by name."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load(_TABLE.read_text(encoding="utf-8"))
    return {name: ChartModule(name, **row) for name, row in rows.items()}


def add(names: Sequence[str], charts: Path) -> list[Chart]:
    """Put charts into the folder; those that are there already are left alone.

    Args:
        names: of `known` charts; none for all of them.

    Raises:
        EngineError: a name isn't known, or the module can't be had or isn't the pinned one.
    """
    table = known()
    unknown = [name for name in names if name not in table]
    if unknown:
        raise EngineError(
            f"no chart {', '.join(unknown)} is known in a Go module; known are "
            f"{', '.join(table)}: get others with `helm pull`, and put them in {charts}"
        )
    try:
        return [_added(table[name], charts) for name in names or table]
    except OSError as error:
        raise explain_os_error(error, f"putting charts into {charts}") from error


def _added(chart: ChartModule, charts: Path) -> Chart:
    target = charts / f"{chart.name}-{chart.chart}"
    if not target.exists():
        source = _module(chart) / chart.folder
        charts.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=charts) as folder:
            work = Path(folder) / chart.name
            shutil.copytree(source, work, copy_function=shutil.copyfile)
            for path in (work, *work.rglob("*")):  # Go's module cache is read-only
                path.chmod(0o755 if path.is_dir() else 0o644)
            _publish(chart, work)
            work.rename(target)
    return Chart(chart.name, chart.chart, target)


def _publish(chart: ChartModule, work: Path) -> None:
    """Do what the project does when it publishes the chart: versions and values are filled in."""
    file = work / "Chart.yaml"
    about = read_mapping(file.read_text(encoding="utf-8"), str(file))
    about |= {"version": chart.chart, "appVersion": chart.version}
    file.write_text(yaml.safe_dump(about, sort_keys=False), encoding="utf-8")
    template = work / "values.tmpl.yaml"
    if template.is_file():
        text = string.Template(template.read_text(encoding="utf-8")).safe_substitute(chart.values)
        (work / "values.yaml").write_text(text, encoding="utf-8")


def _module(chart: ChartModule) -> Path:
    """Where the module lies in Go's own cache, fetched if need be."""
    go, _ = find_go()
    wanted = f"{chart.module}@{chart.version}"
    try:
        done = subprocess.run(
            [str(go), "mod", "download", "-json", wanted],
            env={**os.environ, "GOWORK": "off", "GOFLAGS": "-mod=mod"},
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise EngineError(f"{wanted} can't be had: {error}") from error
    if done.returncode != 0 or "Dir" not in answer:
        said = answer.get("Error") or done.stderr.strip() or "no reason is given"
        raise EngineError(f"{wanted} can't be had: {said}")
    if answer.get("Sum") != chart.sum:
        raise EngineError(
            f"{wanted} isn't the one that is pinned: its checksum is {answer.get('Sum')}, "
            f"expected {chart.sum}"
        )
    return Path(str(answer["Dir"]))
