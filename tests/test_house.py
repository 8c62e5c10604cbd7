"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from falaj import __version__
from falaj.workloads.bounds import FORMS, REGISTRY
from tests.newcomer.documents import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))


@pytest.mark.slow
def test_import_direction() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.stem)
def test_locks_carry_hashes_and_no_hosts(lock: Path) -> None:
    text = lock.read_text()
    pinned = re.findall(r"(?m)^[A-Za-z0-9][^\s]*==[^\s]+", text)
    assert pinned
    blocks = re.split(r"(?m)^(?=[A-Za-z0-9])", text)
    assert all("--hash=sha256:" in block for block in blocks if "==" in block.split("\n")[0])
    assert not re.search(r"https?://|--index-url|--find-links", text)


def test_shipped_stacks_carry_no_salt() -> None:
    """It belongs to who made the stack: with another's nobody can encrypt or read a secret."""
    pattern = "^encryption(salt|key):"
    salted = ["git", "grep", "-l", "--cached", "-E", pattern, "--", "stacks/*.yaml"]
    found = subprocess.run(salted, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (1, "", "")


def test_no_requirement_is_pinned_twice_for_one_environment() -> None:
    pins: dict[tuple[str, str], set[str]] = {}
    for name in ("base", "local", "openvino", "aws", "azure", "kubernetes", "dev", "docs"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        for line in re.findall(r"^[A-Za-z0-9._-]+(?:\[.*?\])?==[^\\\n]+", text, re.MULTILINE):
            package, _, version = line.partition("==")
            pinned, _, marker = version.partition(";")
            key = package.partition("[")[0].lower(), marker.strip()
            pins.setdefault(key, set()).add(pinned.strip())
    assert len(pins) > 100
    assert not {key: found for key, found in pins.items() if len(found) > 1}


@cache
def trees() -> dict[str, ast.Module]:
    """Every module's syntax by its path."""
    return {
        str(path.relative_to(ROOT)): ast.parse(path.read_bytes())
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def test_the_version_stands_once_and_what_cannot_read_it_has_the_same() -> None:
    typed = {
        path
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value == __version__
    }
    assert typed <= {"falaj/__init__.py"}, "take falaj.__version__"
    plugin = ROOT / "components" / "local" / "provider" / "PulumiPlugin.yaml"
    assert yaml.safe_load(plugin.read_text(encoding="utf-8"))["version"] == __version__
    images = ROOT / "components" / "kubernetes" / "data" / "images.yaml"
    read = yaml.safe_load(images.read_text(encoding="utf-8"))["images"]
    built = {name: each["tag"] for name, each in read.items() if each["source"] is None}
    assert built
    assert set(built.values()) == {__version__}, built


#: Regular expressions that are equal by chance, or can't change: what they are of.
ALIKE = {
    "[0-9a-f]{64}": "a SHA-256 in hexadecimal digits",
    "[A-Za-z0-9][A-Za-z0-9._-]{0,62}": "a site's name, a header's value",
    "[a-z]([a-z0-9-]{0,34}[a-z0-9])?": "a job's name, a workspace's: each with its own endings",
}
#: Shorter ones are idioms.
SHORTEST = 10


def expressions(tree: ast.Module) -> Iterator[str]:
    """The regular expressions of a module, without anchors at their ends."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re")),
                args=[ast.Constant(value=str(text)), *_],
            ):
                yield text.removeprefix("^").removesuffix("$")
            case _:
                pass


@pytest.mark.parametrize("package", PACKAGES)
def test_a_regular_expression_stands_once_in_a_package(package: str) -> None:
    found: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        if path.startswith(f"{package}/"):
            for text in expressions(tree):
                found[text].add(path)
    assert not {
        text: sorted(paths)
        for text, paths in found.items()
        if len(paths) > 1 and len(text) >= SHORTEST and text not in ALIKE
    }, "one module has it, and the others import it from there"


#: Regular expressions of workloads that others have as well: what they are of.
ALIKE_BESIDE_WORKLOADS = {
    "[0-9a-f]{64}": "a SHA-256 in hexadecimal digits",
    "sha256:[0-9a-f]{64}": "a digest of OCI's",
    "[0-9a-f]{32}": "a number of 128 bits",
    "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?": "a label of DNS (RFC 1123)",
    "[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?": "a subdomain of DNS (RFC 1123)",
    "[A-Za-z0-9][A-Za-z0-9._-]{0,62}": "a site's name, and the value of a canary's header",
    "[A-Za-z_][A-Za-z0-9_]*": "a name of Python's, of an environment's variable",
}


def test_a_form_of_a_workloads_text_is_typed_nowhere_else() -> None:
    def bare(text: str) -> str:
        return text.removeprefix("^").removesuffix("$").replace("(?:", "(")

    forms = {bare(form.pattern) for of in FORMS.values() for form in of.values()}
    stated = set(forms)
    typed: defaultdict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        texts = {
            bare(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        }
        if path.startswith("workloads/"):
            stated |= {bare(text) for text in expressions(tree) if len(text) >= SHORTEST}
            texts &= forms if path != "workloads/bounds.py" else set()
        for text in texts:
            typed[text].add(path)
    found = {text: sorted(typed[text]) for text in stated if text in typed}
    assert not {text: paths for text, paths in found.items() if text not in ALIKE_BESIDE_WORKLOADS}
    assert {*ALIKE_BESIDE_WORKLOADS} <= {*found}, "what no longer stands twice needs no reason"


#: Constants that are equal and can't be one, or are two facts: why. By their parts in order.
EQUAL = {
    "capacity-block on-demand reservation spot": "what is sold, and in which order it is tried",
    "iso27001:A.8.22 iso27001:A.8.9 nist-800-207:2 uae-ia:T5.2.2": "two demands, on hosts and on "
    "scheduling, that serve the same controls today",
    "parentResourcePath resourceProviderNamespace resourceType": "inputs of Azure's own type: "
    "packs don't know the sandbox",
    ".json .py .yaml": "what packs are made of, and what images are built from",
    "CustomResourceDefinition": "a kind of Kubernetes' own: the engine knows no other package",
    "apiServerAccessProfile": "an input of Azure's own type",
    "cluster.local": "the engine knows no other package",
    **dict.fromkeys(
        (
            "falaj.io/pipeline",
            "falaj.io/pipeline-template",
            "falaj.io/queue",
            "falaj.io/dataset",
            "kueue.x-k8s.io/queue-name",
        ),
        "marks that starters read: workloads know no other package; a test compares",
    ),
    "dataset.json": "the image of starters has no trainer",
    "falaj.vocabulary/1": "the form that the digest of a vocabulary is of: components know no "
    "workload; a test compares",
    "falaj.workloads.batch": "a program, which the command and the provider start",
    "tokens.jwks.json": "a file that a workload writes and a component mounts",
    "http://169.254.169.254/metadata/identity/oauth2/token": "two programs that machines run, "
    "each a file of its own",
    "rbac.authorization.k8s.io": "an API group, of components and of packs",
}
#: Identifiers of others' interfaces: types of Pulumi's packages, versions of APIs, media types.
FOREIGN = re.compile(r"(?:aws|azure-native|kubernetes):\S+|[a-z0-9.]+/v\d\w*|application/[\w.+-]+")
#: Shorter texts are words.
LEAST_LETTERS = 12


def constants(tree: ast.Module) -> Iterator[str]:
    """Module-level lists, sets, mappings and long texts, each as its parts in order."""
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                pass
            case _:
                continue
        match value:
            case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[inner]):
                value = inner
            case _:
                pass
        try:
            given = ast.literal_eval(value)
        except ValueError:
            continue
        if isinstance(given, dict):
            given = [f"{key}={item}" for key, item in given.items()]
        if isinstance(given, str) and len(given) >= LEAST_LETTERS:
            yield given
        elif (
            isinstance(given, list | tuple | set | frozenset)
            and name != "__all__"
            and len(given) > 1
            and any(isinstance(each, str) for each in given)
        ):
            yield " ".join(sorted(map(str, given)))


def test_lists_that_differ_in_form_alone_are_found() -> None:
    text = """A = frozenset({"b", "a"})
B: Final = ("a", "b")
C = ["a"]
D = "a text of some letters"
E = {"b": 1, "a": 2}
"""
    found = list(constants(ast.parse(text)))
    assert found == ["a b", "a b", "a text of some letters", "a=2 b=1"]


def twice(found: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """What several modules have, by what it is."""
    by_what: defaultdict[str, set[str]] = defaultdict(set)
    for what, path in found:
        by_what[what].add(path)
    return {what: sorted(paths) for what, paths in by_what.items() if len(paths) > 1}


def test_a_constant_stands_in_one_module() -> None:
    found = twice((each, path) for path, tree in trees().items() for each in constants(tree))
    found = {what: paths for what, paths in found.items() if not FOREIGN.fullmatch(what)}
    assert {what: paths for what, paths in found.items() if what not in EQUAL} == {}, (
        "one module has it, and the others import it from there; what components, packs, sandbox "
        "and stacks share belongs into components/catalogue/, what workloads' callers need into "
        "workloads/bounds.py"
    )
    assert set(EQUAL) <= set(found), "what is equal no more is no exception"


_AS_A_PATTERN = re.compile(r"\[1-9\](?:\\d|\[0-9\])\{\{?0,8\}\}?")
#: What has nothing to do with versions of models.
OTHER_NUMBERS = {"components/kubernetes/workspace/arguments.py": "sessions, which are counted on"}


def versions_numbered(tree: ast.Module) -> Iterator[str]:
    """Where a version's greatest number is typed, as a number or as a pattern."""
    for node in ast.walk(tree):
        given = node.value if isinstance(node, ast.Constant) else None
        is_number = type(given) is int and given == REGISTRY["version"].high
        if is_number or (isinstance(given, str) and _AS_A_PATTERN.search(given)):
            yield str(given)


def test_a_versions_greatest_number_stands_once() -> None:
    found = {path for path, tree in trees().items() if [*versions_numbered(tree)]}
    assert found == {*OTHER_NUMBERS}, "workloads/bounds.py has it, and what it is written as"


def test_a_greatest_number_that_is_typed_again_is_found() -> None:
    tree = ast.parse(
        "A = Between(1, 999_999_999)\nB = 1_000_000_000\nC = re.compile(r'v([1-9]\\d{0,8})')\n"
        "D = rf'{A}:[1-9][0-9]{{0,8}}'\nE = 99\nF = '[1-9][0-9]{0,3}'\n"
    )
    assert len([*versions_numbered(tree)]) == 3


#: Functions of equal bodies that can't be one: neither side may import the other.
ALIKE_FUNCTIONS = {
    "_sync_folder sync_folder": "components drive workloads through their command lines only",
    "_parsed": "packs don't know the sandbox; what they parse comes from two hands",
}
#: Shorter bodies are idioms.
LEAST_LINES = 4


def functions(tree: ast.Module) -> Iterator[tuple[str, list[ast.stmt], ast.arguments]]:
    """Names, bodies without docstrings, and arguments of a module's longer functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node, clean=False) is not None
            body = node.body[1:] if told else node.body
            if body and (body[-1].end_lineno or 0) - body[0].lineno + 1 >= LEAST_LINES:
                yield node.name, body, node.args


def shape(body: list[ast.stmt]) -> tuple[str, ...]:
    """What statements a body has: cheap, and the same for equal ones."""
    parts = (part for each in body for part in (each, *ast.iter_child_nodes(each)))
    return tuple(type(part).__name__ for part in parts)


def normal(body: list[ast.stmt], given: ast.arguments) -> str:
    """A body with its own names counted."""
    order: dict[str, str] = {}
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        order.setdefault(each.arg, f"a{len(order)}")
    for part in body:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                order.setdefault(inner.id, f"a{len(order)}")
    text = " ".join(map(ast.dump, body))
    return re.sub(r"(id|arg)='(\w+)'", lambda found: order.get(found[2], found[0]), text)


def alike(modules: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Functions of equal bodies in different modules: paths by the functions' names."""
    groups: defaultdict[tuple[str, ...], list[tuple[str, str, list[ast.stmt], ast.arguments]]]
    groups = defaultdict(list)
    for path, tree in modules.items():
        for name, body, given in functions(tree):
            groups[shape(body)].append((path, name, body, given))
    names: defaultdict[str, set[str]] = defaultdict(set)
    found: list[tuple[str, str]] = []
    for group in groups.values():
        if len({path for path, *_ in group}) > 1:
            for path, name, body, given in group:
                text = normal(body, given)
                names[text].add(name)
                found.append((text, path))
    return {" ".join(sorted(names[text])): paths for text, paths in twice(found).items()}


def test_functions_that_differ_by_names_alone_are_found() -> None:
    one = "def f(a, *, b):\n    'Says it.'\n    c = a\n    d = b\n    print(c)\n    return d\n"
    two = "def g(x, *, y):\n    z = x\n    w = y\n    print(z)\n    return w\n"
    other = two.replace("return w", "return z")
    given = {name: ast.parse(text) for name, text in {"1": one, "2": two, "3": other}.items()}
    assert alike(given) == {"f g": ["1", "2"]}


def test_no_function_stands_in_two_modules() -> None:
    found = alike(trees())
    assert {name: paths for name, paths in found.items() if name not in ALIKE_FUNCTIONS} == {}
    assert set(ALIKE_FUNCTIONS) <= set(found), "what is alike no more is no exception"


#: Rows of tables, which are read as such.
ROWS = {"Field", "PodRule"}
#: More fields are told apart by their names alone.
MOST_BY_POSITION = 8


def test_what_has_many_fields_takes_them_by_keyword_alone() -> None:
    found: list[str] = []
    for path, tree in trees().items():
        for node in tree.body if path.startswith("components/") else ():
            if not isinstance(node, ast.ClassDef) or node.name in ROWS:
                continue
            made = " ".join(map(ast.unparse, node.decorator_list))
            fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
            if "dataclass" in made and "kw_only=True" not in made:
                found += [f"{path}: {node.name}"] * (len(fields) > MOST_BY_POSITION)
    assert found == []
