"""The reference has everything that it is made from, and says it as Markdown that can't break."""

import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType
from typing import NotRequired, TypedDict

import pytest
from markdown_it import MarkdownIt

from falaj.policies.controls import controls
from falaj.policies.model import PACKS
from falaj.policies.rules import all_rules
from falaj.stacks.command.tree import COMMANDS
from falaj.stacks.errors import StackError
from falaj.stacks.settings import reference as settings_reference
from tests.newcomer import documents


def _load() -> ModuleType:
    path = documents.ROOT / "docs" / "_extensions" / "reference.py"
    spec = importlib.util.spec_from_file_location("documents_reference", path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


REFERENCE = _load()


def shown(text: str) -> str:
    """What a reader sees of Markdown, without its marks."""
    parts: list[str] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        parts += [child.content for child in token.children or () if child.content]
        if token.type == "fence":
            parts.append(token.content)
    return " ".join(" ".join(parts).split())


def test_every_setting_is_there_with_its_meaning() -> None:
    text = shown(REFERENCE.settings())
    for row in settings_reference.rows():
        assert row.key in text
        assert " ".join(row.meaning.split()) in text
        assert " ".join(row.allowed.split()) in text


@pytest.mark.parametrize("pack", PACKS)
def test_every_rule_is_there_with_its_controls(pack: str) -> None:
    text = shown(REFERENCE.rules(pack))
    own = [each for each in all_rules() if each.pack == pack]
    assert own
    for each in own:
        assert each.id in text
        assert " ".join(each.title.split()) in text
        assert all(control in text for control in each.controls)


def test_every_pack_has_its_place_in_the_page_of_rules() -> None:
    page = (documents.ROOT / "docs" / "reference" / "rules.md").read_text(encoding="utf-8")
    assert re.findall(r"\{falaj-reference\} rules (\w+)", page) == list(PACKS)
    assert re.findall(r"(?m)^## (\w+)$", page) == list(PACKS)


def test_every_control_is_there() -> None:
    text = shown(REFERENCE.served_controls())
    for each in controls():
        assert each.reference in text
        assert " ".join(each.title.split()) in text


def test_every_command_is_there_with_those_below_it() -> None:
    text = REFERENCE.commands()
    for entries in COMMANDS.values():
        for name in entries:
            assert f"Usage: falaj {name} " in text
    assert "Usage: falaj config set " in text
    assert "Usage: falaj sandbox fault add " in text
    assert "--sarif" in text


def test_every_target_is_there() -> None:
    makefile = (documents.ROOT / "Makefile").read_text(encoding="utf-8")
    text = REFERENCE.targets()
    found = re.findall(r"(?m)^([a-z-]+):.*## ", makefile)
    assert "docs" in found
    assert all(f"`make {name}`" in text for name in found)


@pytest.mark.parametrize("platform", list(REFERENCE.PLATFORMS))
def test_every_component_is_there_with_its_arguments(platform: str) -> None:
    package = importlib.import_module(REFERENCE.PLATFORMS[platform])
    text = REFERENCE.components(platform)
    kinds = [each for each in package.__all__ if not each.endswith("Args")]
    assert len(kinds) >= 8
    for name in kinds:
        assert f"## `{name}`" in text
        arguments = REFERENCE.arguments_of(getattr(package, name))
        if arguments is not None:
            assert {each[0] for each in REFERENCE.fields(arguments)} == set(
                arguments.__annotations__
            )
            assert all(each[3] for each in REFERENCE.fields(arguments)), name


def test_components_of_the_clouds_are_those_of_both() -> None:
    aws, azure = (importlib.import_module(f"falaj.components.{each}") for each in ("aws", "azure"))
    assert aws.__all__ == azure.__all__


def test_keys_of_nested_arguments_are_there() -> None:
    assert "**Keys of `TenantEgressArgs`**\n\n`" in REFERENCE.components("kubernetes")


class _Inner(TypedDict):
    """What is within."""

    size: NotRequired[int]
    """Its size, in GiB. Default: 1."""


class _Outer(TypedDict):
    """Arguments."""

    name: str
    """A name: of ``a-z`` | `b`."""
    inner: NotRequired[list[_Inner]]
    """Its parts."""


def test_arguments_are_read_with_what_they_name() -> None:
    assert REFERENCE.fields(_Outer) == [
        ("name", "str", True, "A name: of 'a-z' | 'b'."),
        ("inner", "list[_Inner]", False, "Its parts."),
    ]
    assert REFERENCE.fields(_Inner) == [("size", "int", False, "Its size, in GiB. Default: 1.")]
    assert inspect.isgeneratorfunction(REFERENCE._with_nested)
    assert [each.__name__ for each in REFERENCE._with_nested(_Outer)] == ["_Outer", "_Inner"]


@pytest.mark.parametrize(
    "text", ["a_b_c *d* <e> [f](g)", "`x` | {y}", "# h $z$ ~~s~~", "back\\slash", "<script>"]
)
def test_plain_text_stays_as_it_is(text: str) -> None:
    assert MarkdownIt("commonmark").render(f"x {REFERENCE.escaped(text)}") == (
        "<p>x " + text.replace("<", "&lt;").replace(">", "&gt;") + "</p>\n"
    )


def test_docstrings_keep_examples_lists_and_literals() -> None:
    made = REFERENCE.from_docstring(
        "Does ``a_b``.\n\n::\n\n    one(\n        2)\n\n    three\n\nSees `K`:\n\n- a\n- b <c>"
    )
    assert made == (
        "Does `a_b`.\n\n```python\none(\n    2)\n\nthree\n```\n\nSees `K`:\n\n- a\n- b \\<c\\>"
    )


@pytest.mark.parametrize("words", [["gone"], ["rules", "gone"], ["rules"], ["settings", "x"]])
def test_a_wrong_name_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=r"falaj-reference (has no|can't make)"):
        REFERENCE.text_of(words)


def test_no_page_types_what_is_made() -> None:
    """Pages of the reference that are made hold no list of their own."""
    folder: Path = documents.ROOT / "docs" / "reference"
    made = [path for path in folder.glob("*.md") if "falaj-reference" in path.read_text("utf-8")]
    assert len(made) >= 7
    for path in made:
        kinds = {token.type for token in documents.tokens(path)}
        assert not kinds & {"table_open", "bullet_list_open", "ordered_list_open"}, path.name


def test_what_stands_by_names_of_ones_own_belongs_to_its_key() -> None:
    [row] = settings_reference.rows("falaj:queues.burst.quotas.acme.nvidia.com/gpu")
    assert row.key == "falaj:queues.burst.quotas"
    with pytest.raises(StackError, match="no key or kind of stack"):
        settings_reference.rows("falaj:trainingJobs.credit.nodes.most")
