"""The charts that this machine has, by name and version, and what Helm renders of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import string
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import yaml

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import cache_home
from falaj.engine.gobuild import find_go
from falaj.wire.documents import is_dictionary, is_mapping, is_sequence

# YAML 1.1 as Go's reader has it (sigs.k8s.io/yaml): no dates, no numbers in base 60, and `=` is a
# text, all of which stand in definitions of well-known charts.
_SCALARS: Final = (
    ("bool", r"yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF",
     "yYnNtTfFoO"),
    ("int", r"[-+]?(0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
     r"|\.(nan|NaN|NAN)", "-+.0123456789"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("merge", r"<<", "<"),
)  # fmt: skip


class _Loader(yaml.CSafeLoader):
    """Reads the plain values above, and takes everything else for texts."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in _SCALARS:
    # The class's types say nothing of this one's parameters.
    cast("Any", _Loader).add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}",
        re.compile(f"^(?:{_pattern})$"),
        ["" if each == "\0" else each for each in _first],
    )


def _int(loader: Any, node: Any) -> int:
    text = str(loader.construct_scalar(node)).replace("_", "")
    digits = text.lstrip("+-")
    if digits.startswith("0o"):
        return int(text.replace("0o", "", 1), 8)
    if len(digits) > 1 and digits.isdigit() and digits.startswith("0"):
        return int(text, 8)
    return int(text, 0)


def _float(loader: Any, node: Any) -> float:
    return float(str(loader.construct_scalar(node)).replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


def read_manifests(text: str, where: str) -> list[dict[str, Any]]:
    """The objects of a text with any number of documents; lists are taken apart.

    Raises:
        EngineError: it is no YAML, or something in it is no object with a type and a name.
    """
    try:
        documents = list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EngineError(f"{where} is no YAML that can be read: {error}") from error
    return [each for document in documents for each in expanded(document, where)]


def read_mapping(text: str, where: str) -> dict[str, Any]:
    """One mapping, such as a chart's values; empty for an empty text. Raises EngineError."""
    try:
        found = yaml.load(text, _Loader)  # noqa: S506 - derives from the safe one
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise EngineError(f"{where} is no YAML that can be read: {error}") from error
    if found is None:
        return {}
    if not is_dictionary(found):
        raise EngineError(f"{where}: expected a mapping, given {type(found).__name__}")
    return found


def expanded(document: Any, where: str) -> list[dict[str, Any]]:
    """The objects of a document: none, one, or those of a list. Raises EngineError."""
    if not document:
        return []
    kind = document.get("kind") if is_dictionary(document) else None
    if not isinstance(kind, str) or not isinstance(document.get("apiVersion"), str):
        raise EngineError(f"{where}: {_short(document)} has no apiVersion and kind")
    if kind.endswith("List") and is_sequence(document.get("items")):
        return [one for each in document["items"] for one in expanded(each, where)]
    metadata = document.get("metadata")
    if not is_dictionary(metadata) or not isinstance(metadata.get("name"), str):
        raise EngineError(f"{where}: {_short(document)} has no metadata.name")
    return [document]


def _short(document: Any) -> str:
    text = str(document)
    return text if len(text) <= 100 else f"{text[:97]}…"


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
        for each in metadata(path).get("dependencies") or ()
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


_TABLE = Path(__file__).with_name("modules.yaml")
_FETCH_SECONDS = 600


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
            timeout=_FETCH_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout or "{}")
    except (subprocess.TimeoutExpired, ValueError) as error:
        raise EngineError(f"{wanted} can't be had: {error}") from error
    if done.returncode != 0 or "Dir" not in answer:
        reason = answer.get("Error") or done.stderr.strip() or "no reason is given"
        raise EngineError(f"{wanted} can't be had: {reason}")
    if answer.get("Sum") != chart.sum:
        raise EngineError(
            f"{wanted} isn't the one that is pinned: its checksum is {answer.get('Sum')}, "
            f"expected {chart.sum}"
        )
    return Path(str(answer["Dir"]))


# Rendering: Helm runs on a copy of a chart.

_RENDER_SECONDS: Final = 120


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
            timeout=_RENDER_SECONDS,
            check=False,
        )
    except OSError as error:
        raise explain_os_error(error, f"rendering {about}") from error
    except subprocess.TimeoutExpired as error:
        raise EngineError(f"{about} wasn't rendered within {_RENDER_SECONDS} s") from error
    if done.returncode != 0:
        reason = done.stderr.strip().removeprefix("Error: ") or f"exit status {done.returncode}"
        raise EngineError(f"{about} can't be rendered: {reason}")
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
    missing = missing_dependencies(chart.path)
    if not missing:
        return chart.path
    if not chart.path.is_dir():
        raise _needs(chart, missing, charts)
    target = work / chart.name
    shutil.copytree(chart.path, target, ignore=_LEFT_OUT)
    target.chmod(0o700)  # Go's module cache is read-only
    about = metadata(chart.path)
    own = target / "values.yaml"
    defaults = read_mapping(own.read_text("utf-8"), str(own)) if own.is_file() else {}
    kept: list[Any] = []
    refused: list[tuple[str, str]] = []
    for each in about.get("dependencies") or ():
        name, version = str(each.get("name")), str(each.get("version", ""))
        if (name, version) not in missing:
            kept.append(each)
            continue
        if not _is_wanted(str(each.get("condition") or ""), values, defaults):
            continue
        found = find(name, version, charts)
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
                value = value.get(step) if is_mapping(value) else None
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
