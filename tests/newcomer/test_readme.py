"""No command stands in the README that nothing runs."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.newcomer import readme
from tests.newcomer.scenarios import ELSEWHERE, MENTIONED

HERE = Path(__file__).parent
SCENARIOS = sorted({block.scenario for block in readme.blocks() if block.language == "sh"})


def test_every_block_of_commands_belongs_to_a_scenario() -> None:
    for block in readme.blocks():
        if readme.looks_like_commands(block):
            assert block.language == "sh", block.text
            assert block.scenario, block.text


def _run_by_tests() -> set[str]:
    """Scenarios whose commands a test asks for by name."""
    found: set[str] = set()
    for path in HERE.glob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("readme.commands"):
                found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_run(scenario: str) -> None:
    assert scenario in _run_by_tests()


def test_every_mentioned_command_is_run_or_named_with_what_runs_it() -> None:
    known = {command for commands in MENTIONED.values() for command in commands}
    in_blocks = {command for each in SCENARIOS for command in readme.commands(each)}
    known |= ELSEWHERE.keys() | in_blocks
    known |= {command.removeprefix(".venv/bin/") for command in in_blocks}
    unknown = [
        command
        for command in readme.mentioned()
        if command not in known and command.removeprefix(".venv/bin/") not in known
    ]
    assert not unknown


def test_every_scenario_of_mentioned_commands_is_run() -> None:
    text = "\n".join(path.read_text() for path in HERE.glob("test_*.py"))
    for scenario in MENTIONED:
        assert f'MENTIONED["{scenario}"]' in text


def test_every_command_that_is_named_here_stands_in_the_readme() -> None:
    text = re.sub(r"[ \t]+", " ", readme.text())
    for command in [*ELSEWHERE, *(each for some in MENTIONED.values() for each in some)]:
        assert command in text, command


def test_what_is_left_to_ci_is_in_its_script() -> None:
    script = (readme.ROOT / ".ci" / "run").read_text()
    for command, runner in ELSEWHERE.items():
        if runner == ".ci/run":
            assert command in script
