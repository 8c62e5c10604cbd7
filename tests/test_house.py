"""The rules of the house that a machine can check."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PACKAGES = ["stacks", "components", "workloads", "policies", "engine", "wire"]


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


def test_modules_are_small() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert not long
