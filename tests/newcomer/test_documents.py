"""No command stands in a document that nothing runs, and no snippet that can't be right."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.stacks.settings import reference
from tests.newcomer import documents
from tests.newcomer.scenarios import ELSEWHERE, MENTIONED

HERE = Path(__file__).parent
SCENARIOS = sorted({block.scenario for block in documents.blocks() if block.language == "sh"})
#: The longest that a document may be that everybody reads first.
README_LINES = 120


def snippets(language: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{block.document.stem}-{number}")
        for number, block in enumerate(documents.blocks())
        if block.language == language
    ]


def test_every_block_of_commands_belongs_to_a_scenario() -> None:
    for block in documents.blocks():
        if documents.looks_like_commands(block):
            assert block.language == "sh", block
        if block.language == "sh":
            assert block.scenario, block


def test_a_scenario_stands_in_one_document() -> None:
    for scenario in SCENARIOS:
        found = {
            block.document
            for block in documents.blocks()
            if (block.language, block.scenario) == ("sh", scenario)
        }
        assert len(found) == 1, scenario


def _run_by_tests() -> set[str]:
    """Scenarios whose commands a test asks for by name; those of clusters are with these."""
    found: set[str] = set()
    for path in (*HERE.glob("test_*.py"), *(HERE.parent / "cluster").rglob("*.py")):
        if "documents.commands(" not in (text := path.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "documents.commands":
                found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant)}
    return found


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_run(scenario: str) -> None:
    assert scenario in _run_by_tests()


def test_every_scenario_that_is_run_stands_in_a_document() -> None:
    assert _run_by_tests() == set(SCENARIOS)


def test_every_mentioned_command_is_run_or_named_with_what_runs_it() -> None:
    known = {command for commands in MENTIONED.values() for command in commands}
    in_blocks = {command for each in SCENARIOS for command in documents.commands(each)}
    known |= ELSEWHERE.keys() | in_blocks
    known |= {command.removeprefix(".venv/bin/") for command in in_blocks}
    unknown = [
        command
        for command in documents.mentioned()
        if command not in known and command.removeprefix(".venv/bin/") not in known
    ]
    assert not unknown


def test_every_scenario_of_mentioned_commands_is_run() -> None:
    text = "\n".join(path.read_text() for path in HERE.glob("test_*.py"))
    for scenario in MENTIONED:
        assert f'MENTIONED["{scenario}"]' in text


def test_every_command_that_is_named_here_stands_in_a_document() -> None:
    text = re.sub(r"[ \t]+", " ", documents.text())
    for command in [*ELSEWHERE, *(each for some in MENTIONED.values() for each in some)]:
        assert command in text, command


def test_what_is_left_to_ci_is_in_its_script() -> None:
    script = (documents.ROOT / ".ci" / "run").read_text()
    for command, runner in ELSEWHERE.items():
        if runner == ".ci/run":
            assert command in script


def test_tests_that_are_named_for_commands_are_there() -> None:
    named = [path for told in ELSEWHERE.values() for path in re.findall(r"tests/[\w./]*\w", told)]
    assert named
    assert [path for path in named if not (documents.ROOT / path).exists()] == []


def test_commands_are_found_wherever_they_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "README.md"
    page.write_text(
        "Run `make up` and `falaj` or `.venv/bin/pytest tests`.\n\n"
        "- a list\n\n  ```\n  .venv/bin/falaj report --verify x\n  ```\n\n"
        "| a | `pulumi up --yes` |\n|---|---|\n| b | c |\n\n"
        "```console\n$ make down\n```\n\n    openssl version -a\n"
    )
    monkeypatch.setattr(documents, "ROOT", tmp_path)
    documents.blocks.cache_clear()
    try:
        assert documents.mentioned() == ["make up", ".venv/bin/pytest tests", "pulumi up --yes"]
        assert [documents.looks_like_commands(each) for each in documents.blocks()] == [True] * 3
    finally:
        documents.blocks.cache_clear()


def test_the_readme_is_short() -> None:
    text = (documents.ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= README_LINES
    assert text.count("![") == 1


def test_every_target_is_explained() -> None:
    """`make help` names each target, but for the ones that others need."""
    text = (documents.ROOT / "Makefile").read_text(encoding="utf-8")
    declared = set(re.search(r"(?m)^\.PHONY: (.*)$", text)[1].split())  # type: ignore[index]
    explained = set(re.findall(r"(?m)^([a-z-]+):.*## ", text))
    assert declared - explained == {"environment", "environment-dev", "ensure-test"}


#: Clients that need an environment of their own, and where they are run in it.
IN_THEIR_OWN_ENVIRONMENT = {
    "tritonclient.grpc": "workloads/inference/foreign_grpc.py",
    # Libraries of teams' own models, and one such model that another is made of.
    **dict.fromkeys(("timm", "peft", "mine.bert"), "own_models/check_own_models.py"),
}


@pytest.mark.parametrize("block", snippets("python"))
def test_programs_use_what_is_there(block: documents.Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        name = node.names[0].name if isinstance(node, ast.Import) else ""
        name = str(node.module) if isinstance(node, ast.ImportFrom) else name
        if name in IN_THEIR_OWN_ENVIRONMENT:
            home = documents.ROOT / "tests" / IN_THEIR_OWN_ENVIRONMENT[name]
            assert name in home.read_text(encoding="utf-8")
        elif isinstance(node, ast.ImportFrom):
            module = importlib.import_module(str(node.module))
            for each in node.names:
                if not hasattr(module, each.name):
                    importlib.import_module(f"{node.module}.{each.name}")
        elif isinstance(node, ast.Import):
            for each in node.names:
                importlib.import_module(each.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            home = _imported(block.text).get(node.value.id)
            assert home is None or hasattr(home, node.attr), ast.unparse(node)


def _imported(text: str) -> dict[str, Any]:
    """Modules of Falaj that a program names, by the name."""
    found: dict[str, Any] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("falaj"):
            module = importlib.import_module(str(node.module))
            for each in node.names:
                found[each.asname or each.name] = getattr(module, each.name, None)
    return {name: each for name, each in found.items() if each is not None}


@pytest.mark.parametrize("block", snippets("yaml"))
def test_settings_use_keys_that_are_there(block: documents.Block) -> None:
    document = yaml.safe_load(block.text)
    assert isinstance(document, dict)
    keys = document.get("config", document)
    for key in _keys({name: each for name, each in keys.items() if name.startswith("falaj:")}):
        assert reference.rows(key), key


def _keys(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """The keys of a block with what is above them; free names are settled by the reference."""
    for name, value in values.items():
        way = f"{above}.{name}" if above else name
        yield way
        inner = value if isinstance(value, list) else [value]
        for each in inner:
            if isinstance(each, dict):
                yield from _keys(each, f"{way}[]" if isinstance(value, list) else way)


def test_keys_in_sentences_are_there() -> None:
    for path in documents.documents():
        for span in documents.spans(path):
            key = re.fullmatch(r"(falaj:[\w.]+)(: .*)?", span)
            if key is not None:
                assert reference.rows(key[1]), f"{path.name}: {span}"
