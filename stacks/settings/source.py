"""Where settings come from: a stack file, or the engine that runs the program."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import yaml

from falaj.stacks.errors import SettingsError

#: Configuration by namespaced key, as ``{"falaj:dataset": "digits"}``.
Values = Mapping[str, Any]


def from_file(path: Path, *, namespace_needed: bool = True) -> Values:
    """The ``config`` section of a stack file.

    Args:
        path: the file.
        namespace_needed: whether a key without one is refused.

    Raises:
        SettingsError: the file is missing, not UTF-8, not YAML, or has keys without a namespace.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"there is no stack file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise SettingsError(f"{path} is not valid YAML: {_one_line(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: expected a mapping with a `config` section")
    config = cast("dict[Any, Any]", document).get("config") or {}
    if not isinstance(config, dict):
        raise SettingsError(f"{path}: `config` must be a mapping of namespaced keys")
    values: dict[str, Any] = {}
    for key, value in cast("dict[Any, Any]", config).items():
        if not isinstance(key, str) or (namespace_needed and ":" not in key):
            raise SettingsError(
                f"{path}: config key {key!r} has no namespace; write it as falaj:{key}"
            )
        values[key] = value
    return values


def from_project_and_stack(path: Path, root: Path, *, namespace: str = "") -> Values:
    """What the engine would hand to the program: the project's values, and the stack's over them.

    Args:
        path: the stack's file.
        root: the project's folder.
        namespace: the project's name, which the engine puts before keys that have none. Default:
            such keys are refused, for in Falaj's own stacks they are mistakes.

    Raises:
        SettingsError: one of the files can't be used.
    """
    project = root / "Pulumi.yaml"
    values = {
        **(_project_values(project, namespace) if project.is_file() else {}),
        **_named(from_file(path, namespace_needed=not namespace), namespace),
    }
    return {key: value for key, value in values.items() if ":" in key}


def _project_values(path: Path, namespace: str) -> Values:
    """The ``config`` section of a project file: values stand below ``value`` or ``default``."""
    values: dict[str, Any] = {}
    for key, entry in from_file(path, namespace_needed=False).items():
        if isinstance(entry, dict):
            fields = cast("dict[str, Any]", entry)
            found = next((each for each in ("value", "default") if each in fields), None)
            if found:
                values[key] = fields[found]
        else:
            values[key] = entry
    return _named(values, namespace)


def _named(values: Values, namespace: str) -> Values:
    """Values by keys with a namespace; without one given, as they are."""
    return {
        f"{namespace}:{key}" if namespace and ":" not in key else key: value
        for key, value in values.items()
    }


def from_engine() -> Values:
    """What the engine handed to the program: text, or JSON for structured values."""
    from pulumi.runtime import config  # noqa: PLC0415 - a second that reading a file does not need

    # A language host hands the configuration over in the environment or sets it directly.
    values: dict[str, str] = {**config.get_config_env(), **config.CONFIG.get()}
    return {key: _structured(value) for key, value in values.items()}


def _structured(value: str) -> Any:
    """Objects and lists arrive as JSON text; scalars arrive as they were written."""
    if value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
