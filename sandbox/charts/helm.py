"""Renders charts with Helm itself; nothing is fetched or installed."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.engine.errors import EngineError, explain_os_error
from falaj.sandbox.charts import staging
from falaj.sandbox.charts.library import Chart

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
        path = staging.staged(chart, rendering.values, charts, work)
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
