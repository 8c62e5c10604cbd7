"""A stack's project as the sandbox sees it: copies, so that nothing of the real one is touched.

The engine writes the salt of a passphrase into a stack's file, and a sandbox has a passphrase of
its own. What only a real key could decrypt is replaced by a plain stand-in.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

import yaml

from falaj.engine.files import data_home, make_private, replace_file
from falaj.sandbox.store import Store
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.settings.source import from_project_and_stack
from falaj.wire.documents import mapping

#: What stands for an encrypted value, which the sandbox has no key for.
STAND_IN = "sandbox"
#: The file beside a copied project that names the folder which it was copied from.
_ORIGIN = "copied-from"


def make_workspace(stack: StackFile) -> Path:
    """Write the copies of the project's and the stack's file; returns the copy's folder.

    Raises:
        SettingsError: the stack's file can't be read.
    """
    project = stack.project
    folder = _folder(project)
    make_private(data_home())
    make_private(data_home() / "sandbox")
    (folder / "stacks").mkdir(parents=True, exist_ok=True)
    document = {
        "name": project.name,
        "runtime": _runtime(project)[0],
        "main": str((project.root / project.main).resolve()),
        "stackConfigDir": "stacks",
        "requiredPulumiVersion": ">=3.255.0",
    }
    _write(folder / "Pulumi.yaml", document)
    (folder / _ORIGIN).write_text(str(project.root), encoding="utf-8")
    values = from_project_and_stack(stack.path, project.root, namespace=project.name)
    config = {key: _without_secrets(value) for key, value in values.items()}
    config = _with_published(stack, config)
    target = folder / "stacks" / stack.path.name
    salt: Any = None
    if target.exists():
        before = cast("dict[str, Any]", yaml.safe_load(target.read_text(encoding="utf-8")) or {})
        salt = before.get("encryptionsalt")
    _write(target, {"config": config} | ({"encryptionsalt": salt} if salt else {}))
    return folder


@dataclass(frozen=True)
class Published:
    """The package that was sent to a registry of this machine in place of a stack's own."""

    model: str
    version: int
    package_digest: str
    keys_digest: str


def keep_published(stack: StackFile, what: Published) -> None:
    """Remember what was sent: the stack's copied file, which is there, names it from then on."""
    replace_file(_published(stack), json.dumps(asdict(what)))
    renew(stack)


def _published(stack: StackFile) -> Path:
    return _folder(stack.project) / f"{stack.name}.published.json"


def _with_published(stack: StackFile, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration with what was published in the sandbox, if it names no package itself."""
    path = _published(stack)
    if not path.exists():
        return config
    found = Published(**json.loads(path.read_text(encoding="utf-8")))
    pins = {
        "version": found.version,
        "packageDigest": found.package_digest,
        "keysDigest": found.keys_digest,
    }
    section = mapping(config.get("falaj:inference"))
    flat = {key: config.get(f"falaj:inference.{key}") for key in ("model", *pins)}
    merged = {**{key: value for key, value in flat.items() if value is not None}, **section}
    if merged.get("model") != found.model or any(key in merged for key in pins):
        return config
    if section:
        return {**config, "falaj:inference": {**section, **pins}}
    return {**config, **{f"falaj:inference.{key}": value for key, value in pins.items()}}


def origin(folder: Path) -> Path | None:
    """The folder of the project that one is the copy of; None where it is no copy."""
    inside = folder.resolve().is_relative_to((data_home() / "sandbox" / "projects").resolve())
    named = folder / _ORIGIN
    return Path(named.read_text(encoding="utf-8")) if inside and named.is_file() else None


def renew(stack: StackFile) -> None:
    """Bring the copy of a stack's file, where there is one, to what the file says now."""
    if (_folder(stack.project) / "stacks" / stack.path.name).exists():
        make_workspace(stack)


def _folder(project: Project) -> Path:
    return data_home() / "sandbox" / "projects" / project.name


#: Where people make an environment that no option names, and what it holds if it is for Pulumi.
_USUAL: Final = ("venv", ".venv")
_RUNTIME: Final = "lib/python3*/site-packages/pulumi"


def program_environment(project: Project) -> Path:
    """The virtual environment that a project's program runs in; ours where it isn't Python."""
    return _runtime(project)[1]


def _runtime(project: Project) -> tuple[Any, Path]:
    """How the program is run: as its project says, with paths that hold for the copy as well.

    A Python program without an environment of its own, named or beside it, runs in ours.
    """
    ours = Path(sys.prefix)
    document = yaml.safe_load((project.root / "Pulumi.yaml").read_text(encoding="utf-8"))
    runtime = cast("dict[str, Any]", document).get("runtime", "python")
    if isinstance(runtime, str):
        runtime = {"name": runtime}
    found = cast("dict[str, Any]", runtime)
    if found.get("name") != "python":
        return found, ours
    own = _own_environment(mapping(found.get("options")), project.root)
    environment = own if own is not None and (own / "bin").is_dir() else ours
    return {"name": "python", "options": {"virtualenv": str(environment)}}, environment


def _own_environment(options: Mapping[str, Any], root: Path) -> Path | None:
    """The environment that a project's options mean; None where they mean none that can be told,
    such as one of a tool that isn't here."""
    toolchain, named = options.get("toolchain") or "pip", options.get("virtualenv")
    if named:
        return (root / str(named)).absolute()
    if toolchain == "pip":
        # The vendor's host takes the one that is active; here that is mostly ours.
        beside = ((root / each).absolute() for each in _USUAL)
        return next((each for each in beside if any(each.glob(_RUNTIME))), None)
    # It loads the engine's protocol, which takes half a second: not for most projects.
    from falaj.engine.languagehost.interpreter import (  # noqa: PLC0415
        RuntimeOptionError,
        environment_folder,
    )

    try:
        return environment_folder(str(toolchain).lower(), "", root)
    except RuntimeOptionError:
        return None


def forget_stack(stack: StackFile, cloud: Path) -> None:
    """Drop what is left of a destroyed stack in the sandbox: its copied file, what was published
    for it, what a cloud keeps of it, and resources that a killed run had made before the engine
    could note them."""
    (_folder(stack.project) / "stacks" / stack.path.name).unlink(missing_ok=True)
    _published(stack).unlink(missing_ok=True)
    store = Store(cloud)
    try:
        store.forget(f"urn:pulumi:{stack.name}::{stack.project.name}::")
    finally:
        store.close()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if set(entries) == {"secure"}:
            return STAND_IN
        return {key: _without_secrets(item) for key, item in entries.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in cast("list[Any]", value)]
    return value


def _write(path: Path, document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document, sort_keys=False)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return
    replace_file(path, text)
