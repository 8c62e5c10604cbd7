"""Have the control plane's binaries: built once from pinned Go modules into the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import cache_home, exclusive
from falaj.engine.gobuild import GoModule, compile_commands, module_folders
from falaj.engine.progress import Report, to_stderr
from falaj.engine.versions import Version
from falaj.wire.documents import is_mapping, is_sequence

MODULES = Path(__file__).with_name("modules")
CORE = "kubernetes"
#: Of a platform: they run beside the control plane, or as pods on real machines.
CONTROLLERS = ("kueue", "jobset")
#: Of a platform, as pods on real machines.
IN_PODS = (*CONTROLLERS, "trainer")
#: What real machines need.
REAL = ("kubelet", "containerd", "network-policies", "registry", "pause", "coredns")
#: What tests run beside a control plane or ask.
OF_TESTS = ("prometheus-operator", "alertmanager", *REAL)
#: The Go release that the modules' `go` lines ask for.
TOOLCHAIN = Version(1, 26, 0)
_TEMPORARY = "unfinished-"
_MANIFESTS = "manifests"
_LAYOUT = b"json"
"""Changed with how manifests are kept."""


class _Loader(yaml.CSafeLoader):
    """The loader in C: ten times as fast, and CRDs are long.

    A lone `=`, which YAML 1.1 gives a meaning of its own, is text.
    """


def _text(loader: _Loader, node: yaml.ScalarNode) -> str:
    return str(loader.construct_scalar(node))


_Loader.add_constructor("tag:yaml.org,2002:value", _text)


@dataclass(frozen=True)
class Built:
    """A module that commands are built from."""

    name: str
    version: str
    what: str
    commands: dict[str, str] = field(default_factory=dict[str, str])
    variables: dict[str, str] = field(default_factory=dict[str, str])
    manifests: dict[str, dict[str, list[str]]] = field(
        default_factory=dict[str, dict[str, list[str]]]
    )
    """Files of manifests by what they are called here, then by module: patterns below it."""
    of: str = ""
    """Name of the module, where it isn't this one's."""

    @property
    def module(self) -> GoModule:
        """The Go module that pins it."""
        folder = MODULES / (self.of or self.name)
        return GoModule(folder, f"{self.what} {self.version}", TOOLCHAIN, self.variables)

    @property
    def folder(self) -> Path:
        """Its folder in the user's cache: another one for every change of what is pinned."""
        digest = hashlib.sha256(repr((self.commands, self.variables, self.manifests)).encode())
        if self.manifests:
            digest.update(_LAYOUT)
        for file in self.module.files:
            digest.update(file.read_bytes())
        key = f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"
        return cache_home() / "controlplane" / key

    @property
    def is_there(self) -> bool:
        """Whether it was built: its folder appears whole or not at all."""
        commands = (os.access(self.folder / name, os.X_OK) for name in self.commands)
        return self.folder.is_dir() and all(commands)

    def documents(self, name: str) -> list[dict[str, Any]]:
        """The manifests that are called `name`, in the order of their files.

        Raises EngineError for a name that isn't known.
        """
        if name not in self.manifests:
            raise EngineError(f"no {name!r} is known; known are {', '.join(self.manifests)}")
        text = (self.folder / _MANIFESTS / f"{name}.json").read_text(encoding="utf-8")
        return json.loads(text)


@cache
def built() -> dict[str, Built]:
    """Everything that can be built, by name."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load(
        (MODULES / "modules.yaml").read_text(encoding="utf-8")
    )
    return {name: Built(name, **row) for name, row in rows.items()}


def ensure(names: Sequence[str], report: Report = to_stderr) -> dict[str, str]:
    """Build what is not there yet; return the folder of commands of each name.

    Two runs at once build once, and an interrupted one leaves nothing that looks built.
    Raises EngineError: an unknown name, no usable Go, modules that cannot be had, a compilation
    that fails.
    """
    known = built()
    if unknown := [name for name in names if name not in known]:
        raise EngineError(
            f"no {', '.join(unknown)} can be run beside the control plane; known are "
            f"{', '.join(name for name in known if name != CORE)}"
        )
    for each in (known[name] for name in names):
        if each.is_there:
            continue
        try:
            with exclusive(each.folder.with_name(f"{each.folder.name}.lock"), report, each.what):
                if not each.is_there:
                    _build(each, report)
        except OSError as error:
            raise explain_os_error(error, f"building {each.what} into {each.folder}") from error
    return {name: str(known[name].folder) for name in names}


def _build(each: Built, report: Report) -> None:
    for left in each.folder.parent.glob(f"{_TEMPORARY}{each.name}-*"):  # the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(each.folder, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{each.name}-", dir=each.folder.parent))
    try:
        commands = work / "commands"
        commands.mkdir()
        if each.commands:
            compile_commands(each.module, each.commands, commands, report)
        _keep_manifests(each, commands, report)
        commands.rename(each.folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _keep_manifests(each: Built, target: Path, report: Report) -> None:
    """Keep them as JSON: Go's module cache may be cleaned, and reading long YAML takes seconds."""
    paths = list(dict.fromkeys(path for row in each.manifests.values() for path in row))
    folders = module_folders(each.module, paths, target, report) if paths else {}
    (target / _MANIFESTS).mkdir()
    for name, row in each.manifests.items():
        found: list[dict[str, Any]] = []
        for path, patterns in row.items():
            for pattern in patterns:
                files = sorted(folders[path].glob(pattern))
                if not files:
                    raise EngineError(f"the module {path} has no {pattern} in {folders[path]}")
                for file in files:
                    found += _documents(file)
        (target / _MANIFESTS / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")


def _documents(file: Path) -> list[dict[str, Any]]:
    loaded = yaml.load_all(file.read_text(encoding="utf-8"), _Loader)
    found = [each for each in loaded if each and each["kind"] != "Kustomization"]
    for each in found:
        if each["kind"] == "CustomResourceDefinition":
            for version in each["spec"]["versions"]:
                schema = version["schema"]["openAPIV3Schema"]
                version["schema"]["openAPIV3Schema"] = without_descriptions(schema)
    return found


def without_descriptions(schema: Any) -> Any:
    """A JSON schema without its prose, which is most of it and validates nothing."""
    if is_sequence(schema):
        return [without_descriptions(each) for each in schema]
    if not is_mapping(schema):
        return schema
    return {
        key: value if key in {"default", "enum"} else without_descriptions(value)
        for key, value in schema.items()
        # A property may be called `description`: then it has a schema, no text.
        if not (key == "description" and isinstance(value, str))
    }
