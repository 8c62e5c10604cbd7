"""Runs Helm on a copy of a chart."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.engine.errors import EngineError, explain_os_error
from falaj.sandbox.charts import library
from falaj.sandbox.charts.library import Chart, read_mapping

_SECONDS: Final = 120


@dataclass(frozen=True)
class Rendering:
    """What a chart is rendered with."""

    release: str
    namespace: str
    values: Mapping[str, Any]
    value_files: Sequence[str] = ()
    """Texts in YAML; later ones win over earlier ones, and `values` over all."""
    skip_crds: bool = False
    kube_version: str = ""
    """The version that templates are told; Helm's own by default."""
    api_versions: Sequence[str] = ()
    """What the cluster serves beyond Kubernetes' own, as ``group/version``."""


def render(helm: Path, chart: Chart, rendering: Rendering, charts: Path) -> str:
    """The chart's manifests, hooks left out, as the vendor's provider has it.

    Raises:
        EngineError: Helm refuses the chart or its values; the text is Helm's own.
    """
    with tempfile.TemporaryDirectory(prefix="falaj-chart-") as folder:
        work = Path(folder)
        path = staged(chart, rendering.values, charts, work)
        arguments = [str(helm), "template", rendering.release, str(path), "--no-hooks"]
        if rendering.namespace:
            arguments += ["--namespace", rendering.namespace]
        if not rendering.skip_crds:
            arguments.append("--include-crds")
        if rendering.kube_version:
            arguments += ["--kube-version", rendering.kube_version]
        for each in rendering.api_versions:
            arguments += ["--api-versions", each]
        texts = [*rendering.value_files, json.dumps(rendering.values)]
        for number, text in enumerate(texts):
            file = work / f"values-{number}.yaml"
            file.write_text(text, encoding="utf-8")
            arguments += ["--values", str(file)]
        return _run(arguments, chart, work)


def _run(arguments: list[str], chart: Chart, work: Path) -> str:
    about = f"chart {chart.name} {chart.version}"
    # No plugin, no repository and no cluster of the person's own takes part.
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(work),
        "KUBECONFIG": os.devnull,
        **{f"HELM_{name}_HOME": str(work / name.lower()) for name in ("CACHE", "CONFIG", "DATA")},
    }
    try:
        done = subprocess.run(
            arguments,
            env=environment,
            cwd=work,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except OSError as error:
        raise explain_os_error(error, f"rendering {about}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{about} wasn't rendered within {_SECONDS} s") from error
    if done.returncode != 0:
        said = done.stderr.strip().removeprefix("Error: ") or f"exit status {done.returncode}"
        raise EngineError(f"{about} can't be rendered: {said}")
    return done.stdout


# Of a source tree, and of no use to a chart.
_LEFT_OUT: Final = shutil.ignore_patterns("tests", "ci", "*.gotmpl", "Chart.lock")


def staged(chart: Chart, values: Mapping[str, Any], charts: Path, work: Path) -> Path:
    """The chart, or a copy of it in `work` with the charts that it depends on.

    A dependency is left out where its condition is false with these values; Helm would refuse to
    render the chart all the same.

    Raises:
        EngineError: a chart that is needed isn't there.
    """
    missing = library.missing_dependencies(chart.path)
    if not missing:
        return chart.path
    if not chart.path.is_dir():
        raise _needs(chart, missing, charts)
    target = work / chart.name
    shutil.copytree(chart.path, target, ignore=_LEFT_OUT)
    target.chmod(0o700)  # Go's module cache is read-only
    about = library.metadata(chart.path)
    own = target / "values.yaml"
    defaults = read_mapping(own.read_text("utf-8"), str(own)) if own.is_file() else {}
    kept: list[Any] = []
    refused: list[tuple[str, str]] = []
    for each in about.get("dependencies") or []:
        name, version = str(each.get("name")), str(each.get("version", ""))
        if (name, version) not in missing:
            kept.append(each)
            continue
        if not _is_wanted(str(each.get("condition") or ""), values, defaults):
            continue
        found = library.find(name, version, charts)
        if found is None:
            refused.append((name, version))
            continue
        _place(found, target / "charts")
        kept.append({**each, "version": found.version, "repository": ""})
    if refused:
        raise _needs(chart, refused, charts)
    file = target / "Chart.yaml"
    file.unlink()
    file.write_text(yaml.safe_dump({**about, "dependencies": kept}), encoding="utf-8")
    return target


def _is_wanted(condition: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> bool:
    """Whether the first path of a condition that has a value says yes; no condition says yes."""
    for path in filter(None, (each.strip() for each in condition.split(","))):
        for given in (values, defaults):
            value: Any = given
            for step in path.split("."):
                value = value.get(step) if isinstance(value, Mapping) else None
            if isinstance(value, bool):
                return value
    return True


def _place(chart: Chart, folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir()
    if chart.path.is_dir():
        shutil.copytree(chart.path, folder / chart.name, ignore=_LEFT_OUT)
    else:
        shutil.copy2(chart.path, folder / chart.path.name)


def _needs(chart: Chart, missing: list[tuple[str, str]], charts: Path) -> EngineError:
    names = ", ".join(f"{name} {version}" for name, version in missing)
    return EngineError(
        f"chart {chart.name} {chart.version} depends on {names}, which it doesn't contain and "
        f"{charts} hasn't got either; put them there (a chart that was published contains them), "
        "or turn them off by their conditions in the values"
    )
