"""What an argument of a component may be, and is by default, stands in one place."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    TypedDict,
    get_args,
    get_origin,
    is_typeddict,
)

import annotated_types
import pytest
from pydantic import BaseModel
from pydantic import Field as PydanticField
from pydantic.fields import FieldInfo

import falaj.components
import falaj.components.kubernetes
import falaj.components.local
import falaj.components.specification
import falaj.stacks
import falaj.stacks.settings
from falaj.components.catalogue.tag_names import DATA_CLASSES, ENVIRONMENTS
from falaj.components.local.provider.resources import HANDLERS
from falaj.components.specification.arguments import (
    Default,
    SameAs,
    Usual,
    arguments_of,
    hints,
    plain_of,
)
from falaj.components.specification.described import documented, plain
from falaj.components.specification.limits import Between, Limit, OneOf, TextRule
from falaj.components.specification.property_names import camel
from falaj.components.specification.workload_bounds import bound, choice
from falaj.policies.model import Settings as PackSettings
from falaj.stacks.settings.derived import section_of
from falaj.stacks.settings.load import ALL, BLUEPRINTS
from falaj.stacks.settings.local import LocalSettings
from falaj.stacks.settings.reference import description, sections_below
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.shapes import keys_of

FOLDER = Path(falaj.components.specification.__file__).parent
COMPONENTS = sorted(
    path.stem for path in FOLDER.glob("*.py") if "\ndef check(cloud" in path.read_text("utf-8")
)


def arguments_class(component: str) -> Any:
    module = importlib.import_module(f"falaj.components.specification.{component}")
    wanted = component.replace("_", "") + "args"
    [found] = [kind for name, kind in vars(module).items() if name.lower().endswith(wanted)]
    return found


def sections() -> Iterator[type[BaseModel]]:
    """Every section of every kind of stack."""
    waiting: list[type[BaseModel]] = list(ALL.values())
    seen: set[type[BaseModel]] = set()
    while waiting:
        model = waiting.pop()
        if model in seen:
            continue
        seen.add(model)
        yield model
        for key in keys_of(model):
            waiting += [section for section, _ in sections_below(key, (key.name,))]


@pytest.mark.parametrize("kind", BLUEPRINTS)
def test_what_a_stack_may_say_is_read_by_somebody(kind: str) -> None:
    """A key that is checked and then dropped is worse than one that is refused."""
    program = Path(inspect.getfile(falaj.stacks)).parent
    read = {
        node.attr
        for path in program.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and isinstance(node.value, ast.Name)
        and node.value.id in {"settings", "self"}
    }
    # Which kind a stack is was read before there are settings.
    assert set(BLUEPRINTS[kind].model_fields) - {"blueprint"} <= read


def marks(annotation: Any) -> list[Any]:
    """Limits and defaults of an annotation, at any depth."""
    found: list[Any] = []
    for each in getattr(annotation, "__metadata__", ()):
        found += each.metadata if isinstance(each, FieldInfo) else [each]
    for inner in get_args(annotation):
        found += marks(inner)
    return [mark for mark in found if isinstance(mark, Limit | Default | annotated_types.Len)]


def is_derived(section: Any, name: str) -> bool:
    """Whether a key was made of the component's argument, so that it can't say anything else.

    Its limit is the argument's then, or one that equals it: typing keeps what it made of equals.
    """
    bases = (each for each in section.__mro__ if name in inspect.get_annotations(each))
    return next(bases).__module__ == section_of.__module__


#: Keys of a stack that take less than their component does, or something else in its place.
NARROWER = {
    "ServiceSettings.host": "this machine or all of its networks, no address of one",
    "ServiceSettings.port": "the server of a stack has no privileges; the port is that of images",
    "TrainingSettings.options": "names as the workload takes them, in a class of one's own",
}


def stated_again(section: Any) -> list[str]:
    """Keys of a section whose limit or default isn't the component's own."""
    found: list[str] = []
    for each in section.__mro__:
        arguments = each.__dict__.get("described_by")
        if isinstance(arguments, str):
            module, _, name = arguments.rpartition(".")
            arguments = getattr(importlib.import_module(module), name)
        if is_typeddict(arguments):
            found += stated_again_of(section, each, arguments)
        elif arguments is not None:
            found += model_stated_again(section, arguments)
    return found


def stated_again_of(section: Any, described: Any, arguments: Any) -> Iterator[str]:
    """Keys of a section that ``arguments`` describe for it, or for one that it is made from."""
    for name, field in section.model_fields.items():
        is_there = name in arguments.__annotations__
        if not is_there or name not in described.model_fields or is_derived(section, name):
            continue
        own = marks(hints(arguments)[name])
        limits = [m for m in field.metadata if isinstance(m, Limit)] + marks(field.annotation)
        # Equal annotations may be one object, with the default of another argument.
        limits = [mark for mark in limits if not isinstance(mark, Default)]
        if not all(any(mark is each for each in own) for mark in limits):
            yield f"{section.__name__}.{name}: another limit"
        if "Literal[" in str(field.annotation):
            yield f"{section.__name__}.{name}: another list of choices"
        given = None if field.is_required() else field.get_default(call_default_factory=True)
        default = arguments_of(arguments)[name].usual
        shared = default is not None and given is default.value and not isinstance(given, bool)
        if given not in (None, {}) and not shared and not isinstance(given, BaseModel):
            yield f"{section.__name__}.{name}: another default"


def model_stated_again(section: Any, model: Any) -> list[str]:
    """Keys of a section whose form isn't that of the model which describes it, or whose text says
    another default. A model's lists are written as lists in a file, and may have any length."""
    if not (inspect.isclass(model) and issubclass(model, BaseModel)):
        return []
    found: list[str] = []
    for name, field in section.model_fields.items():
        if name not in model.model_fields:
            continue
        own = model.model_fields[name]
        if forms(field) - forms(own):
            found.append(f"{section.__name__}.{name}: another form")
        said = re.search(r"Default: (?:``)?([\w-]+)(?:``)?\.$", documented(section).get(name, ""))
        default = own.get_default(call_default_factory=True)
        if said and default and said[1] != str(default):
            found.append(f"{section.__name__}.{name}: another default")
    return found


_LENGTHS = (annotated_types.Len, annotated_types.MinLen, OneOf)


def forms(field: FieldInfo) -> set[str]:
    """What holds of a field's value or its entries, but for how many they are."""

    def within(annotation: Any) -> Iterator[Any]:
        if get_origin(annotation) is Literal:
            yield annotation
        for each in getattr(annotation, "__metadata__", ()):
            yield from each.metadata if isinstance(each, FieldInfo) else [each]
        for inner in get_args(annotation):
            yield from within(inner)

    every = [*field.metadata, *within(field.annotation)]
    return {repr(each) for each in every if not isinstance(each, _LENGTHS)}


class PackModel(BaseModel):
    """What a pack takes."""

    most: Annotated[int, PydanticField(ge=0)] = 16
    kind: Literal["a", "b"] = "a"


class PackSection(Section):
    """A section that says the same, and something else."""

    described_by: ClassVar = PackModel
    most: Annotated[int, PydanticField(ge=1)] | None = None
    """How many. Default: 17."""
    kind: Literal["a", "b"] | None = None
    """Which. Default: ``a``."""


def test_a_form_or_default_of_a_model_that_differs_is_found() -> None:
    assert stated_again(PackSection) == [
        "PackSection.most: another form",
        "PackSection.most: another default",
    ]


def test_no_section_states_what_its_component_does() -> None:
    every = list(sections())
    assert len(every) > 40
    told = [each for each in every if getattr(each, "described_by", None) is not None]
    assert len(told) > 25
    found = [problem for section in told for problem in stated_again(section)]
    assert {each.partition(":")[0] for each in found} == set(NARROWER)


class Arguments(TypedDict):
    """What a component takes."""

    nodes: NotRequired[Annotated[int, Between(0, 447), Default(1)]]
    kind: NotRequired[Annotated[str, OneOf(("a", "b"))]]
    tall: NotRequired[Annotated[bool, Default(value=False)]]


class Retyped(Section):
    """A section that says nearly the same once more: equal annotations may be one object."""

    described_by: ClassVar = Arguments
    nodes: Annotated[int, Between(0, 446)] | None = None
    kind: Annotated[str, OneOf(("b", "a"))] | None = None
    tall: bool = False


def test_a_bound_that_is_typed_again_is_found() -> None:
    assert stated_again(Retyped) == [
        "Retyped.nodes: another limit",
        "Retyped.kind: another limit",
        "Retyped.tall: another default",
    ]


def test_checks_take_defaults_from_the_arguments() -> None:
    """No ``args.get("max_nodes", 1)`` in any check: the default stands at the argument."""
    names = {name for each in COMPONENTS for name in arguments_of(arguments_class(each))}
    found: list[str] = []
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), _]
                ) if name in names:
                    found.append(f"{path.name}:{node.lineno}: {name}")
                case _:
                    pass
    assert found == []


@pytest.mark.parametrize("component", COMPONENTS)
def test_texts_leave_bounds_and_defaults_to_the_annotation(component: str) -> None:
    kind = arguments_class(component)
    texts = documented(kind)
    for name, argument in arguments_of(kind).items():
        text = texts[name]
        if argument.default is not None:
            assert not re.search(r"\bDefault:", text), f"{name}: {text}"
        if isinstance(argument.limit, Between):
            low, high = argument.limit.low, argument.limit.high
            assert not re.search(rf"\b{low:.0f} to {high:.0f}\b", text), f"{name}: {text}"
        if isinstance(argument.limit, OneOf) and len(argument.limit.values) > 1:
            listed = r"'?(, | or )'?".join(re.escape(str(each)) for each in argument.limit.values)
            assert not re.search(listed, text), f"{name}: {text}"


# Arguments and options of what runs in a cluster.

IN_CLUSTER = Path(falaj.components.kubernetes.__file__).parent
_TYPED_RANGE = re.compile(r"\b\d[\d,.]* to \d|\b(?:up to|at most) \d")
_TYPED_DEFAULT = re.compile(r"\bDefault: (?:'([^']+)'|([\d.,]*\d|true|false))\.(?: |$)")


@cache
def in_cluster() -> Mapping[str, Any]:
    """Every TypedDict of arguments or options, by its name."""
    found: dict[str, Any] = {}
    for path in sorted(IN_CLUSTER.rglob("*.py")):
        parts = path.relative_to(IN_CLUSTER).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        module = importlib.import_module(".".join(("falaj.components.kubernetes", *parts)))
        found |= {
            name: kind
            for name, kind in vars(module).items()
            if is_typeddict(kind)
            and kind.__module__ == module.__name__
            and name.endswith(("Args", "Options"))
        }
    return found


def own_texts(kind: Any) -> Mapping[str, str]:
    """The texts of a class's fields, without those that it inherits."""
    [node] = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    fields = (each.target for each in node.body if isinstance(each, ast.AnnAssign))
    own = {each.id for each in fields if isinstance(each, ast.Name)}
    return {name: text for name, text in documented(kind).items() if name in own}


def typed_in_texts(kind: Any) -> list[str]:
    """Fields whose text types a range, or a default that isn't another argument's value."""
    found: list[str] = []
    for name, text in own_texts(kind).items():
        default = _TYPED_DEFAULT.search(text)
        another = default is not None and default[1] in kind.__annotations__
        if _TYPED_RANGE.search(text) or (default and not another):
            found.append(name)
    return found


def test_texts_of_options_in_a_cluster_leave_bounds_and_defaults_to_the_annotation() -> None:
    typed = {
        name: fields for name, kind in in_cluster().items() if (fields := typed_in_texts(kind))
    }
    assert len(in_cluster()) > 50
    assert typed == {}


class Rehearsals(TypedDict):
    """Options that type what their annotations should say."""

    minutes: NotRequired[int]
    """After which it is given up, 1 to 240."""
    names: NotRequired[list[str]]
    """Up to which; up to 50 of them."""
    days: NotRequired[int]
    """Days. Default: 1,000."""
    fast: NotRequired[bool]
    """Whether. Default: true."""
    mode: NotRequired[str]
    """How. Default: ``audit``. Not on Sundays."""
    region: NotRequired[str]
    """Where. Default: the cluster's, by ``zone``."""
    place: NotRequired[str]
    """Where. Default: ``region``."""
    replicas: NotRequired[Annotated[int, Between(1, 3)]]
    """How many. Default: 2 in production, else 1."""


def test_a_range_or_default_that_a_text_types_is_found() -> None:
    assert typed_in_texts(Rehearsals) == ["minutes", "names", "days", "fast", "mode"]


def rooms() -> Iterator[tuple[str, list[ast.Module]]]:
    """The modules of a component together; each add-on is one alone."""
    files: dict[str, list[ast.Module]] = {}
    for path in sorted(IN_CLUSTER.rglob("*.py")):
        parts = path.relative_to(IN_CLUSTER).parts
        room = parts[0] if parts[0] != "addons" else "/".join(parts)
        files.setdefault(room, []).append(ast.parse(path.read_text(encoding="utf-8")))
    yield from files.items()


def stated_in(trees: list[ast.Module], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name, of the classes that a room defines."""
    classes = [each.name for tree in trees for each in tree.body if isinstance(each, ast.ClassDef)]
    return {
        name: argument
        for each in classes
        if each in kinds
        for name, argument in arguments_of(kinds[each]).items()
        if name in kinds[each].__annotations__ and (argument.limit or argument.default)
    }


def about(call: ast.Call) -> str:
    """The argument that a check is about: the last part of the path that it is given."""
    first = call.args[0] if call.args else None
    if isinstance(first, ast.JoinedStr):
        first = first.values[-1]
    return str(first.value).rpartition(".")[2] if isinstance(first, ast.Constant) else ""


def checked_again(trees: list[ast.Module], stated: Mapping[str, Any]) -> list[str]:
    """Calls that type the bounds or the default of an argument whose annotation has one."""
    found: list[str] = []
    for node in (each for tree in trees for each in ast.walk(tree)):
        match node:
            case ast.Call(func=ast.Attribute(attr=check) | ast.Name(id=check)) if check in {
                "whole", "number", "amount", "choice", "get",
            }:  # fmt: skip
                name = about(node)
                rest = [*node.args[1:], *(each.value for each in node.keywords)]
                typed = [each for each in rest if isinstance(each, ast.Constant | ast.Tuple)]
                is_default = check == "get" and name in stated and stated[name].default
                is_bound = check != "get" and name in stated and stated[name].limit
                if typed and (is_default or is_bound):
                    found.append(f"{name} ({check})")
            case ast.BoolOp(op=ast.Or(), values=[
                ast.Call(func=ast.Attribute(attr="get")) as got, ast.Constant(),
            ]) if about(got) in stated and stated[about(got)].default:  # fmt: skip
                found.append(f"{about(got)} (or)")
            case _:
                pass
    return found


def test_checks_in_a_cluster_type_no_bound_or_default_again() -> None:
    found = {room: checked_again(trees, stated_in(trees, in_cluster())) for room, trees in rooms()}
    assert {room: calls for room, calls in found.items() if calls} == {}


def test_a_bound_or_default_that_a_check_types_is_found() -> None:
    tree = ast.parse(
        "class Arguments(TypedDict): ...\n"
        'errors.whole("nodes", given["nodes"], 0, 447)\n'
        'errors.whole(f"{at}.nodes", given["nodes"], 0, 447)\n'
        'errors.choice("kind", given["kind"], ("a", "b"))\n'
        'given.get("nodes", 1)\n'
        'given.get("tall") or False\n'
        'errors.whole("others", given["others"], 0, 447)\n'
        'given.get("kind", "a")\n'
        'given.get("nodes")\n'
    )
    assert checked_again([tree], stated_in([tree], {"Arguments": Arguments})) == [
        "nodes (whole)", "nodes (whole)", "kind (choice)", "nodes (get)", "tall (or)",
    ]  # fmt: skip


# Arguments of components on one machine, and what their provider takes.

ON_ONE_MACHINE = Path(falaj.components.local.__file__).parent
_LIMITS = {each.__name__ for each in (Between, OneOf, TextRule, Default, Usual, bound, choice)}


@cache
def on_one_machine() -> Mapping[str, Any]:
    """Every TypedDict of a component's arguments, by its name."""
    return {
        name: getattr(falaj.components.local, name)
        for name in falaj.components.local.__all__
        if name.endswith("Args") and name != "LocalProviderArgs"
    }


def test_texts_of_arguments_on_one_machine_leave_bounds_and_defaults_to_the_annotation() -> None:
    typed = {
        name: fields for name, kind in on_one_machine().items() if (fields := typed_in_texts(kind))
    }
    assert {each.type_name for each in HANDLERS} == {
        name.removesuffix("Args") for name in on_one_machine()
    }
    assert typed == {}


def test_texts_on_one_machine_list_no_words_again() -> None:
    for name, kind in on_one_machine().items():
        texts = documented(kind)
        for argument, each in arguments_of(kind).items():
            if isinstance(each.limit, OneOf):
                words = [f"'{word}'" for word in each.limit.values]
                said = [word for word in words if word in texts[argument]]
                assert len(said) < len(words) or len(words) < 3, f"{name}.{argument}: {said}"


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda handler: handler.type_name)
def test_the_providers_table_is_made_of_the_arguments(handler: Any) -> None:
    arguments = getattr(falaj.components.local, f"{handler.type_name}Args")
    assert handler.arguments is arguments
    assert "table" not in own_names(type(handler))
    for name, each in arguments_of(arguments).items():
        assert handler.table[camel(name)].limit is each.limit


def own_names(kind: type) -> set[str]:
    """What a class says in its source, which isn't what it is given when it is made."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(node, ast.ClassDef)
    targets = [
        each.target if isinstance(each, ast.AnnAssign) else each.targets[0]
        for each in node.body
        if isinstance(each, ast.AnnAssign | ast.Assign)
    ]
    return {each.id for each in targets if isinstance(each, ast.Name)}


def limits_typed(tree: ast.Module) -> list[str]:
    """Calls that make a limit or a default of constants, or take one of a workload."""
    return [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in _LIMITS
        and any(isinstance(each, ast.Constant) for each in ast.walk(node))
    ]


#: A limit that no single argument has.
OF_BOTH = "bound('grpc', 'max_body_bytes')"


def test_limits_on_one_machine_stand_with_the_arguments() -> None:
    found: dict[str, list[str]] = {}
    for path in sorted(ON_ONE_MACHINE.rglob("*.py")):
        name = path.relative_to(ON_ONE_MACHINE).as_posix()
        typed = limits_typed(ast.parse(path.read_text("utf-8")))
        typed = [each for each in typed if each != OF_BOTH]
        if typed and not name.startswith("arguments/"):
            found[name] = typed
    assert found == {}


def test_a_limit_beside_the_arguments_is_found() -> None:
    tree = ast.parse(
        'A = Between(1, 9)\nB = bound("training", "epochs")\nC = Default(value=True)\n'
        "D = OneOf(WORDS)\nE = bound(workload, option)\n"
    )
    assert limits_typed(tree) == [
        "Between(1, 9)", "bound('training', 'epochs')", "Default(value=True)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "section", [each for each in sections() if each.__module__ == LocalSettings.__module__],
    ids=lambda section: section.__name__,
)  # fmt: skip
def test_no_section_of_one_machine_has_a_limit_that_equals_an_arguments(section: Any) -> None:
    """Typing keeps one of equals, so that what was typed again is seen in the source alone."""
    [node] = ast.parse(textwrap.dedent(inspect.getsource(section))).body
    allowed = {"Between(1024, 65535)"}
    assert set(limits_typed(ast.Module([node], []))) <= allowed


# Texts below fields: what an argument means stands with the argument.

_LEAST_WORDS = 5


def worded(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Each field with a text of its own: its class, its name and the text."""
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        for field, after in itertools.pairwise(node.body):
            match field, after:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    yield node.name, name, plain(text)
                case _:
                    pass


def told_below_fields(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each part of a sentence that stands below a field, and the field, as ``Class.field``.

    What something is without may well be the same of two.
    """
    for kind, name, text in worded(tree):
        meaning = re.sub(r"\bDefault: [^.]*", "", text)
        for part in re.split(r"[.;:,]\s", meaning + " "):
            if len(part.split()) >= _LEAST_WORDS:
                yield part, f"{kind}.{name}"


def trees_below(folder: Path) -> list[ast.Module]:
    return [ast.parse(path.read_text("utf-8")) for path in sorted(folder.rglob("*.py"))]


def told_twice(arguments: Iterable[ast.Module], settings: Iterable[ast.Module]) -> set[str]:
    """Keys of settings that say in the same words what an argument does, each with it."""
    known: dict[str, str] = {}
    for tree in arguments:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Args"):
                known |= told_below_fields(ast.Module([node], []))
    every = (found for tree in settings for found in told_below_fields(tree))
    return {f"{field} as {known[part]}" for part, field in every if part in known}


#: Texts of which a part has to differ.
APART = {
    "LocalSettings.dataset as DatasetArgs.source": "the component's path is absolute",
    "TrainingSettings.start as TrainingRunArgs.start": "a stack cuts the text as the model does",
}


def test_no_key_of_a_stack_tells_in_its_own_words_what_an_argument_means() -> None:
    components = trees_below(Path(falaj.components.__file__).parent)
    settings = trees_below(Path(falaj.stacks.settings.__file__).parent)
    assert told_twice(components, settings) == {*APART}


def test_a_text_that_is_told_again_is_found() -> None:
    arguments = ast.parse(
        'class NodeArgs(TypedDict):\n    most: int\n    """Most nodes of the pool, of\n'
        '    all zones together. Default: the zones\'."""\n'
    )
    settings = ast.parse(
        "class NodeSettings(Section):\n    most_nodes: int\n"
        '    """How many; of all zones together, or fewer."""\n'
        '    other: int\n    """Of all of the zones together."""\n'
    )
    assert told_twice([arguments], [settings]) == set()
    again = ast.parse(
        ast.unparse(settings).replace("How many; of all", "Most nodes of the pool, of all")
    )
    assert told_twice([arguments], [again]) == {"NodeSettings.most_nodes as NodeArgs.most"}


# What a component on one machine takes as one in a cluster does stands in a room of both.

_ALIKE = 0.75


def words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text)


def worded_alike(ones: Iterable[ast.Module], others: Iterable[ast.Module]) -> set[str]:
    """Fields of one name whose texts are nearly the same, of classes of both."""
    known = [found for tree in ones for found in worded(tree)]
    texts = [found for tree in others for found in worded(tree)]
    return {
        f"{kind}.{name} as {other}.{name}"
        for other, name, text in texts
        for kind, known_name, known_text in known
        if name == known_name
        and difflib.SequenceMatcher(None, words(known_text), words(text)).ratio() > _ALIKE
    }


def rooms_of_both() -> list[ast.Module]:
    """The modules whose classes state arguments of one machine and of clusters."""

    def sources(kinds: Iterable[Any]) -> set[str]:
        every = (each.same_as for kind in kinds for each in arguments_of(kind).values())
        return {each.arguments.__module__ for each in every if each}

    both = sources(on_one_machine().values()) & sources(in_cluster().values())
    files = [Path(inspect.getfile(importlib.import_module(each))) for each in sorted(both)]
    return [ast.parse(path.read_text("utf-8")) for path in files]


def test_no_component_on_one_machine_tells_what_one_in_a_cluster_does() -> None:
    here, there = trees_below(ON_ONE_MACHINE / "arguments"), trees_below(IN_CLUSTER)
    assert told_twice(here, there) == set()
    assert worded_alike(here, there) == set()
    # Nor does either say again what the rooms of both do.
    shared = rooms_of_both()
    assert len(shared) > 3
    assert told_twice(shared, [*here, *there]) == set()
    assert worded_alike(shared, [*here, *there]) == set()


def test_a_text_of_one_machine_that_a_cluster_tells_is_found() -> None:
    here = ast.parse(
        "class RowArgs(TypedDict):\n    keep: list[str]\n"
        '    """Columns of the input that go with the answers."""\n'
        '    mark: str\n    """What stands before the decimals of a file. Default: a point."""\n'
    )
    there = ast.parse(
        "class PodArgs(TypedDict):\n    keep: list[str]\n"
        '    """Columns of an input that go with the answers."""\n'
        '    sign: str\n    """For CSV: what stands before the decimals of a file."""\n'
        '    mark: str\n    """A label."""\n'
    )
    assert told_twice([here], [there]) == set()
    assert worded_alike([here], [there]) == {"RowArgs.keep as PodArgs.keep"}
    again = ast.parse(ast.unparse(there).replace("what stands", "What stands"))
    assert told_twice([here], [again]) == {"PodArgs.sign as RowArgs.mark"}


class Meant(TypedDict):
    """Options, and below them those who take them."""

    share: NotRequired[Annotated[float, Between(0, 1), Default(0.5)]]
    """Share of the rows."""


class Flat(TypedDict):
    """Arguments of which one is an option."""

    rows_share: NotRequired[Annotated[float, SameAs(Meant, "share")]]
    """With ``rows`` alone."""


class Derived(Section):
    """Keys that mean what an argument does."""

    share: Annotated[float | None, SameAs(Meant, "share")] = None
    """Default: all of them."""
    same: Annotated[float | None, SameAs(Meant, "share")] = None


def test_an_argument_that_is_stated_elsewhere_has_all_of_it_from_there() -> None:
    there, here = arguments_of(Meant)["share"], arguments_of(Flat)["rows_share"]
    assert here.limit is there.limit
    assert here.default == there.default == Default(0.5)
    assert documented(Flat) == {"rows_share": "Share of the rows. With 'rows' alone."}
    keys = {key.name: description(Derived, key) for key in keys_of(Derived)}
    assert keys == {
        "share": "Share of the rows. Default: all of them.",
        "same": "Share of the rows.",
    }


def test_every_argument_that_is_stated_elsewhere_has_the_type_from_there() -> None:
    kinds = {**in_cluster(), **on_one_machine()}
    found = {
        f"{name}.{argument}": (plain_of(each.type), plain_of(source.type))
        for name, kind in kinds.items()
        for argument, each in arguments_of(kind).items()
        if each.same_as
        for source in [arguments_of(each.same_as.arguments)[each.same_as.name]]
    }
    assert len(found) > 8
    assert {name: types for name, types in found.items() if types[0] != types[1]} == {}


def test_every_argument_is_plain_or_an_input() -> None:
    """What the check of all arguments reads off annotations, it must be able to read."""
    for component in COMPONENTS:
        for name, each in arguments_of(arguments_class(component)).items():
            assert each.late or each.type in (str, int, float, bool) or get_args(each.type), name
            assert inspect.isclass(each.type) or each.late or get_args(each.type)


def test_packs_take_the_classes_and_environments_that_components_do() -> None:
    """Types of Python are written out, and so can't be made of the lists."""
    fields = PackSettings.model_fields
    assert get_args(fields["data_class"].annotation) == DATA_CLASSES
    assert get_args(fields["environment"].annotation) == ENVIRONMENTS
