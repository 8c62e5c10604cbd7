"""The rules of the house that a machine can check."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PACKAGES = ["stacks", "components", "workloads", "policies", "engine", "sandbox", "wire"]


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


def test_no_requirement_is_pinned_twice_for_one_environment() -> None:
    pins: dict[tuple[str, str], set[str]] = {}
    for name in ("base", "local", "aws", "azure", "kubernetes", "dev", "docs"):
        text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
        for line in re.findall(r"^[A-Za-z0-9._-]+(?:\[.*?\])?==[^\\\n]+", text, re.MULTILINE):
            package, _, version = line.partition("==")
            pinned, _, marker = version.partition(";")
            key = package.partition("[")[0].lower(), marker.strip()
            pins.setdefault(key, set()).add(pinned.strip())
    assert len(pins) > 100
    assert not {key: found for key, found in pins.items() if len(found) > 1}


#: Regular expressions that are equal by chance, or can't change: what they are of.
ALIKE = {
    "[0-9a-f]{64}": "a SHA-256 in hexadecimal digits",
    "[A-Za-z0-9][A-Za-z0-9._-]{0,62}": "a site's name, a header's value",
    "[a-z]([a-z0-9-]{0,34}[a-z0-9])?": "a job's name, a workspace's: each with its own endings",
}
#: Shorter ones are idioms.
SHORTEST = 10


def expressions(path: Path) -> Iterator[str]:
    """The regular expressions of a module, without anchors at their ends."""
    for node in ast.walk(ast.parse(path.read_bytes())):
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
    for path in (ROOT / package).rglob("*.py"):
        for text in expressions(path):
            found[text].add(str(path.relative_to(ROOT)))
    assert not {
        text: sorted(paths)
        for text, paths in found.items()
        if len(paths) > 1 and len(text) >= SHORTEST and text not in ALIKE
    }, "one module has it, and the others import it from there"
