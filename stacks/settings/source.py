"""Where settings come from: a stack file over the project's own, or the engine.

Also the project's other stacks, as far as one that stands on them has to know them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

from falaj.components.nearest import nearest
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings.document import Document, Mapping, Scalar, Way, read, resolved
from falaj.stacks.settings.given import Given, Location, Values
from falaj.stacks.settings.problems import NAMESPACE, Problem, RefusedSettingsError, flaw_problem
from falaj.stacks.settings.splices import SpliceError, difference, drop, put, rename, reread

PROJECT_FILE = "Pulumi.yaml"


@dataclass(frozen=True)
class Sibling:
    """A stack that has a file, or that is made from a template when it is needed."""

    name: str
    platform: str
    """Empty where its file says none, as with several places."""
    blueprint: str
    stands_on: str
    """The foundation that it refers to; empty where it makes its own."""


def siblings(given: Given, root: Path | None) -> list[Sibling]:
    """All stacks of the project, in the order of their names.

    Args:
        given: what one of them says: its file is beside the others'.
        root: the project's folder, which says where files are if nobody else does.
    """
    folder = given.stack_file.path.parent if given.stack_file else stack_folder(root)
    if folder is None:
        return []
    files = {path.stem.removeprefix("Pulumi."): path for path in folder.glob("Pulumi.*.yaml")}
    for template in sorted((folder / "templates").glob("*.yaml")):
        files.setdefault(template.stem, template)
    return [_sibling(name, path) for name, path in sorted(files.items())]


def stack_folder(root: Path | None) -> Path | None:
    """Where the stack files of a project are; None where there is no project."""
    if root is None or not (root / PROJECT_FILE).is_file():
        return None
    return _stack_folder(root, read(root / PROJECT_FILE, PROJECT_FILE))


def _stack_folder(root: Path, project: Document) -> Path:
    """Where a project's stack files are, by its own file."""
    return root / (_text(project, "stackConfigDir") or ".")


def _sibling(name: str, path: Path) -> Sibling:
    document = read(path, path.name)

    def value_of(key: str) -> str:
        return _text(document, "config", f"{NAMESPACE}:{key}")

    return Sibling(name, value_of("platform"), value_of("blueprint"), value_of("foundation"))


def _text(document: Document, *way: str) -> str:
    node = resolved(document.node(way))
    return node.text if isinstance(node, Scalar) else ""


#: What the engine itself keeps in a stack file: sdk/go/common/workspace/project.go (ProjectStack).
_ENGINE_KEYS: Final = (
    "config",
    "encryptionsalt",
    "encryptedkey",
    "secretsprovider",
    "environment",
)


def shown_path(path: Path, root: Path) -> str:
    """A path as a person writes it: from the working folder, else from the project's."""
    whole = path.absolute()
    for folder in (Path.cwd(), root.absolute()):
        if whole.is_relative_to(folder):
            return whole.relative_to(folder).as_posix()
    return str(path)


def given_in_files(path: Path, root: Path, *, namespace: str = "") -> Given:
    """What the engine would hand to the program: the project's values, and the stack's over them.

    Args:
        path: the stack's file.
        root: the project's folder.
        namespace: the project's name, which the engine puts before keys that have none. Default:
            such keys are problems, for in Falaj's own stacks they are mistakes.

    Raises:
        SettingsError: there is no stack file.
    """
    try:
        document = read(path, shown_path(path, root))
    except FileNotFoundError:
        raise SettingsError(f"there is no stack file {shown_path(path, root)}") from None
    return given_in(document, root, namespace=namespace)


def given_in(document: Document, root: Path, *, namespace: str = "") -> Given:
    """As `given_in_files`, of a stack's file that was read, or is about to be written."""
    reader = _Reader(namespace)
    project = root / PROJECT_FILE
    if project.is_file():
        reader.project(read(project, shown_path(project, root)))
    reader.stack(document)
    stack = document.path.stem.removeprefix("Pulumi.")
    return Given(
        reader.values, reader.locations, document, stack, tuple(reader.problems), reader.is_whole
    )


def from_project_and_stack(path: Path, root: Path, *, namespace: str = "") -> Values:
    """The values alone; see `given_in_files`.

    Raises:
        SettingsError: one of the files can't be used.
    """
    given = given_in_files(path, root, namespace=namespace)
    if given.problems:
        raise RefusedSettingsError(given.problems)
    return given.values


def given_by_engine(stack: str, root: Path) -> Given:
    """What the engine handed to the program, with the lines of the files that say the same.

    A value that differs from the file's was given to the engine in another way (``--config``, an
    environment): no line is named for it.
    """
    from pulumi.runtime import config  # noqa: PLC0415 - a second that reading a file does not need

    # A language host hands the configuration over in the environment or sets it directly.
    handed: dict[str, str] = {**config.get_config_env(), **config.CONFIG.get()}
    secrets = frozenset(key for key in handed if config.is_config_secret(key))
    values = {key: _structured(value) for key, value in handed.items()}
    files = _files_of(stack, root)
    if files is None:
        return Given(values, stack=stack, secrets=secrets)
    locations = {
        key: location
        for key, location in files.locations.items()
        if key in handed and _handed(files.values[key]) == _handed(values[key])
    }
    return Given(values, locations, files.stack_file, stack, secrets=secrets)


def _files_of(stack: str, root: Path) -> Given | None:
    """The files that the engine will have read; None where they can't be found."""
    try:
        reader = _Reader("")
        project = read(root / PROJECT_FILE, PROJECT_FILE)
        reader.project(project)
        path = _stack_folder(root, project) / f"Pulumi.{stack}.yaml"
        document = read(path, path.relative_to(root).as_posix())
    except (OSError, ValueError):
        return None
    reader.stack(document)
    return Given(reader.values, reader.locations, document, stack)


def _structured(value: str) -> Any:
    """Objects and lists arrive as JSON text; scalars arrive as they were written."""
    if value[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError:
        return value


def _handed(value: Any) -> Any:
    """A value in the form in which both a file's and the engine's can be compared."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _handed(each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_handed(each) for each in cast("list[Any]", value)]
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "" if value is None else str(value)


class _Reader:
    """Collects values, their places, and what is wrong with the files."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.values: dict[str, Any] = {}
        self.locations: dict[str, Location] = {}
        self.problems: list[Problem] = []
        self.is_whole = True

    def project(self, document: Document) -> None:
        """The ``config`` section of a project file: a value stands alone, or below ``value``."""
        for key, way in self._config(document):
            inner = resolved(document.node(way))
            whole = way
            if isinstance(inner, Mapping):
                found = next((each for each in ("value", "default") if each in inner.by_name), "")
                if not found:
                    continue
                whole = (*way, found)
            named = self._named(key)
            if ":" in named:
                self._note(named, Location(document, whole, way if whole != way else ()))

    def stack(self, document: Document) -> None:
        """The ``config`` section of a stack file."""
        self._outside(document)
        for key, way in self._config(document):
            named = self._named(key)
            if ":" in named:
                self._note(named, Location(document, way))
            else:
                entry = document.entry(way)
                self._meant(f"{NAMESPACE}:{key}", Location(document, way))
                self.problems.append(
                    Problem(
                        f"config key '{key}' has no namespace; write it as {NAMESPACE}:{key}",
                        document,
                        entry.key.start if entry else 0,
                        difference(document.text, rename(document, way, f"{NAMESPACE}:{key}")),
                    )
                )

    def _note(self, key: str, location: Location) -> None:
        node = location.document.node(location.way)
        self.values[key] = node.data if node else None
        self.locations[key] = location

    def _meant(self, key: str, location: Location) -> None:
        """Read what stands at the wrong place as what was meant, so that it isn't missing."""
        if key not in self.values:
            self._note(key, location)

    def _named(self, key: str) -> str:
        return f"{self._namespace}:{key}" if self._namespace and ":" not in key else key

    def _config(self, document: Document) -> Iterator[tuple[str, Way]]:
        """Keys of the section with their places; what is wrong with the file is noted."""
        self.problems += [flaw_problem(document, flaw) for flaw in document.flaws]
        self.is_whole = self.is_whole and document.is_readable
        root = resolved(document.root)
        if root is None or root.data is None:
            return
        if not isinstance(root, Mapping):
            self.is_whole = False
            self.problems.append(
                Problem(
                    "expected a mapping with a `config` section, not "
                    + ("a list" if isinstance(root.data, list) else "text alone"),
                    document,
                    root.start,
                )
            )
            return
        config = resolved(document.node(("config",)))
        if config is None or config.data is None:
            return
        if not isinstance(config, Mapping):
            self.is_whole = False
            entry = root.by_name["config"]
            self.problems.append(
                Problem(
                    "`config` must be a mapping of namespaced keys, as falaj:dataset: digits",
                    document,
                    entry.key.start,
                    _as_mapping(document, config.data),
                )
            )
            return
        for name, entry in config.by_name.items():
            if _is_text(entry.key):
                yield name, ("config", name)
            else:
                self.problems.append(_no_text(document, entry.key))

    def _outside(self, document: Document) -> None:
        """Keys beside ``config`` that were meant to be it, or to be within."""
        root = resolved(document.root)
        for name, entry in root.by_name.items() if isinstance(root, Mapping) else ():
            if name in _ENGINE_KEYS:
                continue
            near = nearest(name, ("config",))
            if near and "config" not in cast("Mapping", root).by_name:
                after = rename(document, (name,), "config")
                message = f"{name}: unknown; did you mean config?"
                self.is_whole = False
            elif name.partition(":")[0] == NAMESPACE:
                message = f"{name}: stands outside of `config:`; indent it below that"
                after = _moved(document, name)
                self._meant(name, Location(document, (name,)))
            else:
                continue
            edit = difference(document.text, after) if after else None
            self.problems.append(Problem(message, document, entry.key.start, edit))


def _is_text(key: Scalar) -> bool:
    return bool(key.quote) or isinstance(key.value, str)


def _no_text(document: Document, key: Scalar) -> Problem:
    """A key such as ``5`` or ``true``."""
    return Problem(
        f"the key {key.text or 'nothing'} is no text; write it in quotes",
        document,
        key.start,
        difference(document.text, _quoted(document, key)),
    )


def _quoted(document: Document, key: Scalar) -> str:
    return f'{document.text[: key.start]}"{key.text}"{document.text[key.end :]}'


def _as_mapping(document: Document, listed: Any) -> Any:
    """The lines of a ``config`` that is a list of keys, as the mapping that was meant."""
    whole: dict[str, Any] = {}
    for each in cast("list[Any]", listed) if isinstance(listed, list) else ():
        if isinstance(each, dict):
            whole |= cast("dict[str, Any]", each)
    if not whole:
        return None
    return difference(document.text, put(document, ("config",), whole))


def _moved(document: Document, name: str) -> str:
    """The text with a key below ``config``."""
    node = document.node((name,))
    try:
        without = reread(document, drop(document, (name,)))
        return put(without, ("config", name), node.data if node else None)
    except SpliceError:
        return ""
