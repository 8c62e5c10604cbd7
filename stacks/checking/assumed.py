"""What is assumed of a program that nobody has made a stack of, or whose stack is to differ.

A program of somebody else mostly comes without a stack's file. It is judged all the same: as a
stack of the country's regions, with the values that its template offers and those of ``--config``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from falaj.components.catalogue import PLACES
from falaj.stacks.checking.subject import subject_of
from falaj.stacks.command.console import say
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.errors import StackError
from falaj.stacks.settings.source import from_project_and_stack
from falaj.wire.documents import is_mapping, mapping

#: How a stack is called that nobody has named, as `pulumi new` calls the first one.
STACK: Final = "dev"
#: Keys that say a provider's region, by cloud.
_REGION_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "aws": ("aws:region",),
    "azure": ("azure-native:location",),
}


def assumed(
    project: Project, names: Sequence[str], given: Sequence[str], folder: Path
) -> list[StackFile]:
    """The stacks of a program that isn't Falaj's own, each with a file that says all values.

    Args:
        project: the program's.
        names: of the stacks; none means all that have a file, or one that is called `STACK`.
        given: values as ``KEY=VALUE``; a key without a namespace is the project's.
        folder: where the files go.

    Returns:
        Nothing where the project's own files say all.

    Raises:
        StackError: a value has another form, or the stack is one of Falaj's own.
    """
    values = dict(_value(each, project) for each in given)
    has_files = bool(project.stack_names)
    if (has_files and not values) or project.templates:
        return _none(values)
    chosen = list(dict.fromkeys(names)) or project.stack_names or [STACK]
    return [_file(StackFile(each, project), values, folder, has_files) for each in chosen]


def _none(values: Mapping[str, str]) -> list[StackFile]:
    if values:
        raise StackError(
            "--config: given for a project of Falaj's; allowed: for programs that aren't its own\n"
            "  write the value into the stack's file: falaj config set KEY VALUE"
        )
    return []


def _file(stack: StackFile, values: Mapping[str, str], folder: Path, has_files: bool) -> StackFile:
    project = stack.project
    config: dict[str, Any] = {}
    if has_files:
        if subject_of(stack).settings is not None:
            _none(values)
        config = dict(from_project_and_stack(stack.path, project.root, namespace=project.name))
    else:
        own = set(_keys_with_values(project))
        offered = {key: value for key, value in _offered(project).items() if key not in own}
        config = offered | _regions({*own, *offered, *values})
        assumed = ", ".join(f"{key}={value}" for key, value in config.items() if key not in values)
        say(
            f"no stack file: judged as stack {stack.name}, where not told otherwise with {assumed}"
        )
        say("  others: --config KEY=VALUE, such as --config aws:region=me-central-1")
    path = folder / f"Pulumi.{stack.name}.yaml"
    path.write_text(yaml.safe_dump({"config": {**config, **values}}), encoding="utf-8")
    return StackFile(stack.name, project, path)


def _value(given: str, project: Project) -> tuple[str, str]:
    key, found, value = given.partition("=")
    if not found or not key.strip():
        raise StackError(
            f"--config: given {given!r}; allowed: KEY=VALUE, as --config aws:region=me-central-1"
        )
    return _named(key.strip(), project), value


def _named(key: str, project: Project) -> str:
    return key if ":" in key else f"{project.name}:{key}"


def _keys_with_values(project: Project) -> Iterator[str]:
    """Keys to which the project's file gives a value; it may also say the type of one alone."""
    for key, each in mapping(_document(project).get("config")).items():
        if not is_mapping(each) or {"default", "value"} & set(each):
            yield _named(str(key), project)


def _offered(project: Project) -> dict[str, Any]:
    """The values that the project's template would offer; no region, which is an example."""
    template = mapping(mapping(_document(project).get("template")).get("config"))
    regions = {key for keys in _REGION_KEYS.values() for key in keys}
    return {
        _named(str(key), project): each["default"]
        for key, each in template.items()
        if is_mapping(each) and each.get("default") not in (None, "") and key not in regions
    }


def _regions(given: Collection[str]) -> dict[str, str]:
    """The country's region for each key of one that isn't given."""
    found: dict[str, str] = {}
    for place in PLACES:
        cloud, _, region = place.partition("/")
        for key in _REGION_KEYS.get(cloud, ()):
            if key not in given:
                found.setdefault(key, region)
    return found


def _document(project: Project) -> Mapping[str, Any]:
    text = (project.root / "Pulumi.yaml").read_text(encoding="utf-8")
    return mapping(yaml.safe_load(text))


# What a Python program asks for, read from its text: the engine tells the first that is missing.

_REQUIRES: Final = "require"


def missing_values(stack: StackFile) -> list[str]:
    """Keys that a Python program requires in its own text and that the stack doesn't say."""
    project = stack.project
    values = from_project_and_stack(stack.path, project.root, namespace=project.name)
    folder = (project.root / project.main).resolve()
    found: set[str] = set()
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            continue
        found |= set(_required(tree, project.name))
    return sorted(found - set(values))


def _required(tree: ast.Module, project: str) -> Iterator[str]:
    spaces: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = ast.unparse(node.value.func).rpartition(".")[2]
            if called == "Config":
                space = _text(node.value) or project
                spaces |= {ast.unparse(each): space for each in node.targets}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            key, owner = _text(node), node.func.value
            if not node.func.attr.startswith(_REQUIRES) or not key:
                continue
            inline = _text(owner) or project if isinstance(owner, ast.Call) else ""
            space = spaces.get(ast.unparse(owner), inline)
            if space:
                yield f"{space}:{key}"


def _text(call: ast.Call) -> str:
    first = call.args[0] if call.args else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
