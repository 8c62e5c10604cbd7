"""Documents: positions, flaws, the engine's reading, and changes that touch nothing else."""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, example, given
from hypothesis import strategies as st

from falaj.stacks.errors import SettingsError
from falaj.stacks.settings import load_file
from falaj.stacks.settings.document import Document, Scalar, Way, parse, read_plain, walk, written
from falaj.stacks.settings.splices import (
    SpliceError,
    difference,
    drop,
    lines_of,
    put,
    rename,
    reread,
)

_NAMES = st.text(string.ascii_letters + string.digits + "-_./ é", min_size=1, max_size=8)
_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)
_MAPPINGS = st.dictionaries(_NAMES, _VALUES, min_size=1, max_size=4)


def document(text: str) -> Document:
    return parse(text, Path("p.yaml"), "p.yaml")


def dumped(value: Any, *, flow: bool | None, indent: int) -> str:
    return yaml.safe_dump(
        value, default_flow_style=flow, indent=indent, sort_keys=False, allow_unicode=True
    )


def at(value: Any, way: Way) -> Any:
    for step in way:
        value = value[step]
    return value


@given(_MAPPINGS, st.sampled_from([True, False, None]), st.sampled_from([2, 4]))
def test_every_key_and_value_is_where_its_position_says(
    value: dict[str, Any], flow: bool | None, indent: int
) -> None:
    text = dumped(value, flow=flow, indent=indent)
    # PyYAML folds some line breaks of Unicode (U+0085) when it writes: that is another value.
    assume(yaml.safe_load(text) == value)
    found = document(text)
    assert found.is_readable
    assert not found.flaws
    assert found.root is not None
    assert found.root.data == value
    lines = lines_of(found.text)
    for way, entry, node in walk(found.root):
        assert found.node(way) is node
        # A block's first line lacks its indentation: only values on one line are read alone.
        if isinstance(node, Scalar):
            shown = found.text[node.start : node.end]
            assert (yaml.safe_load(shown) if shown.strip(" \n") else None) == at(value, way)
        if entry is not None:
            key = found.text[entry.key.start : entry.key.end]
            assert yaml.safe_load(key) == way[-1]
            assert key.split("\n")[0] in lines[found.line(entry.key.start) - 1]
            assert found.entry(way) is entry


@given(st.text(max_size=200))
@example("a: &a\n<<: *a")
@example("- [\n- ]")
@example("? ? ?")
@example("\ufeff")
@example("%YAML 9.9\n---\na")
@example("!<tag:x> a: b")
@example("&a a: *a")
@example('"\\ud800": 1')
@example("a: |\n\x85b")
def test_no_text_ends_in_a_trace(text: str) -> None:
    found = document(text)
    assert found.is_readable or found.flaws
    for flaw in found.flaws:
        assert found.line(flaw.offset) >= 1


_YAML_LIKE = st.text(
    st.sampled_from(list("ab:{}[],&*!|>'\"#%@`-? \n\t01.\r~=<")), max_size=60
) | st.lists(
    st.sampled_from(
        ["config:", "\n", "  ", "falaj:", "platform: ", "local", "{", "}", "[", "]", ": ", ",",
         "- ", "&x ", "*x", "<<: ", "|\n", "service", ".port", "010", "2026-01-01", "\t", '"',
         "training:", "? ", "---", "!!str ", "yes", "aws", "cluster", "blueprint: "]
    ), max_size=30,
).map("".join)  # fmt: skip


@given(_YAML_LIKE)
def test_no_stack_file_ends_in_a_trace(tmp_path_factory: Any, text: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = folder / "Pulumi.any.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    try:
        load_file(path, folder)
    except SettingsError as error:
        assert "Traceback" not in str(error)
        assert str(error)


@given(_SCALARS | st.text(), st.booleans())
def test_what_is_written_is_read_alike_by_everybody(value: Any, in_flow: bool) -> None:
    text = written(value, in_flow=in_flow)
    text = f"a: [{text}]" if in_flow else f"a: {text}"
    found = document(text)
    assert found.is_readable, text
    read = found.root.data["a"] if found.root else None
    read = read[0] if in_flow else read
    assert (read, type(read)) == (value, type(value))
    other = yaml.safe_load(text)["a"]
    if isinstance(value, str | bool | int) or value is None:
        assert (other[0] if in_flow else other) == value


@pytest.mark.parametrize(
    ("text", "value", "clear"),
    [
        ("no", "no", True), ("yes", "yes", True), ("On", "On", True), ("y", "y", True),
        ("true", True, True), ("TRUE", True, True), ("~", None, True), ("null", None, True),
        ("010", 8, False), ("089", 89, False), ("0o10", 8, False), ("0x1F", 31, False),
        ("0b11", 3, False), ("1_000", 1000, False), ("+5", 5, False), (".5", 0.5, False),
        ("5.", 5, False), ("1:30", "1:30", True), ("=", "=", True), ("<<", "<<", True),
        ("0", 0, True), ("-7", -7, True), ("1.5", 1.5, True), ("1e3", 1000.0, True),
        ("2026-04-30", "2026-04-30", False), ("2026-04", "2026-04", True),
        ("2026-4-3 10:00:00", "2026-4-3 10:00:00", False), (".inf", float("inf"), False),
        ("sha256:00", "sha256:00", True), ("10.0.0.0/8", "10.0.0.0/8", True), ("-", "-", True),
        ("1.2.3", "1.2.3", True), ("v1", "v1", True), ("08:00", "08:00", True),
    ],
)  # fmt: skip
def test_what_stands_without_quotes(text: str, value: Any, clear: bool) -> None:
    found = read_plain(text)
    assert (found.value, type(found.value)) == (value, type(value))
    assert (not found.unclear) is clear


@pytest.mark.parametrize("text", ["1.30", "1e3", "1.0", "9" * 25, "-0"])
def test_numbers_that_are_others_once_they_are_text(text: str) -> None:
    assert read_plain(text).loses


def ways(value: Any, start: Way = ()) -> list[Way]:
    found = [start] if start else []
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            found += ways(inner, (*start, key))
    return found


@given(
    _MAPPINGS,
    st.sampled_from([True, False, None]),
    st.sampled_from([2, 4]),
    st.data(),
)
def test_a_change_is_what_was_asked_for_and_nothing_else(
    value: dict[str, Any], flow: bool | None, indent: int, data: st.DataObject
) -> None:
    text = "# above\n" + dumped(value, flow=flow, indent=indent) + "# below\n"
    before = document(text)
    assume(before.root is not None and before.root.data == value)
    way = data.draw(st.sampled_from(ways(value)))
    new = data.draw(_VALUES)
    kind = data.draw(st.sampled_from(["put", "drop", "add"]))
    parent = at(value, way[:-1])
    try:
        if kind == "put":
            after = put(before, way, new)
            parent[way[-1]] = new
        elif kind == "drop":
            after = drop(before, way)
            del parent[way[-1]]
        else:
            assume(isinstance(parent, dict) and "added" not in parent)
            after = put(before, (*way[:-1], "added"), new)
            parent["added"] = new
    except SpliceError:
        return
    again = document(after)
    assert again.is_readable, after
    # Of a file without its last key comments are left.
    assert (again.root.data if again.root else {}) == value
    assert after.startswith("# above\n")
    assert after.rstrip("\n").endswith("# below")


COMMENTED = """\
# head
config:   # the settings
    falaj:platform:   local   # where

    # of the pool
    falaj:gpuPools:
        h200: {gpu: "H200", 'count': 8,   zones: [a,  b]}   # big
        # of the next
        l4:
            gpu: 'L4'
            zones:
            - a      # first
            - b
    falaj:a.b: "5"
# tail
"""


@pytest.mark.parametrize(
    ("way", "value", "lines"),
    [
        (("falaj:platform",), "aws", {3: "    falaj:platform:   aws   # where"}),
        (("falaj:gpuPools", "h200", "count"), 4,
         {7: "        h200: {gpu: \"H200\", 'count': 4,   zones: [a,  b]}   # big"}),
        (("falaj:gpuPools", "h200", "gpu"), "H100",
         {7: "        h200: {gpu: \"H100\", 'count': 8,   zones: [a,  b]}   # big"}),
        (("falaj:gpuPools", "h200", "zones", 1), "c",
         {7: "        h200: {gpu: \"H200\", 'count': 8,   zones: [a,  c]}   # big"}),
        (("falaj:gpuPools", "h200", "zones", 2), "c",
         {7: "        h200: {gpu: \"H200\", 'count': 8,   zones: [a,  b, c]}   # big"}),
        (("falaj:gpuPools", "l4", "gpu"), "no", {10: "            gpu: 'no'"}),
        (("falaj:gpuPools", "l4", "zones", 0), "c", {12: "            - c      # first"}),
        (("falaj:a.b",), "6", {14: '    falaj:a.b: "6"'}),
    ],
)  # fmt: skip
def test_comments_quotes_and_blanks_stay(way: Way, value: Any, lines: dict[int, str]) -> None:
    after = put(document(COMMENTED), ("config", *way), value).splitlines()
    expected = COMMENTED.splitlines()
    for number, line in lines.items():
        expected[number - 1] = line
    assert after == expected


def test_a_removed_key_leaves_the_comment_of_the_next() -> None:
    before = document(COMMENTED)
    after = drop(before, ("config", "falaj:gpuPools", "h200"))
    assert difference(before.text, after).first == 7
    assert "# of the next" in after
    assert "# big" not in after
    after = drop(before, ("config", "falaj:gpuPools", "l4", "zones", 0))
    assert "            zones:\n            - b\n" in after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", "config:\n  k:\n    x: 1\n"),
        ("# c", "# c\nconfig:\n  k:\n    x: 1\n"),
        ("config:", "config:\n  k:\n    x: 1"),
        ("config: # c\n", "config:\n  k:\n    x: 1 # c\n"),
        ("config: {}\n", "config: {k: {x: 1}}\n"),
        ("config: {a: 1,}\n", "config: {a: 1, k: {x: 1},}\n"),
        ("config:\n  a: 1\n  # end\n", "config:\n  a: 1\n  k:\n    x: 1\n  # end\n"),
        ("config:\n  a: |\n    b\n\nz: 1\n", "config:\n  a: |\n    b\n  k:\n    x: 1\n\nz: 1\n"),
        ("config:\r\n  a: 1\r\n", "config:\r\n  a: 1\r\n  k:\r\n    x: 1\r\n"),
        ("\ufeffconfig:\n  a: 1", "\ufeffconfig:\n  a: 1\n  k:\n    x: 1"),
    ],
)
def test_where_a_new_section_goes(text: str, after: str) -> None:
    assert put(document(text), ("config", "k", "x"), 1) == after
    assert reread(document(text), after).root.data["config"]["k"] == {"x": 1}  # pyright: ignore


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (("a", "b"), "1 has nothing below it"),
        (("l", 5), "5 is no position in a list of 1; allowed: 0 to 1"),
        (("new", 1), "1 is no position in a list that isn't there; allowed: 0"),
    ],
)
def test_what_cannot_be_put(way: Way, said: str) -> None:
    with pytest.raises(SpliceError, match=said):
        put(document("a: 1\nl: [x]\n"), way, 2)


def test_what_is_not_there_is_neither_dropped_nor_renamed() -> None:
    for change in (
        lambda: drop(document("a: 1"), ("b",)),
        lambda: rename(document(""), ("b",), "c"),
    ):
        with pytest.raises(SpliceError, match="b is not there"):
            change()
