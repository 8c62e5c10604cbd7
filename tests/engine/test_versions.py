from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.engine.versions import Version, go_version, pins


@pytest.mark.parametrize(
    "text", ["", "v", "3", "three", "3.255.0.1", "3.x.0", "v3.255.0 extra", "-1.2"]
)
def test_what_is_no_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a version"):
        Version.parse(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("v3.255.0\n", Version(3, 255, 0)),
        ("3.256.1-alpha.x12", Version(3, 256, 1, "alpha.x12")),
        ("1.26", Version(1, 26, 0)),
        ("1.25rc2", Version(1, 25, 0, "rc2")),
        ("v3.255.0+dirty", Version(3, 255, 0)),
    ],
)
def test_versions_are_read(text: str, expected: Version) -> None:
    assert Version.parse(text) == expected


@given(st.tuples(*[st.integers(0, 999_999)] * 3))
def test_a_version_reads_what_it_prints(numbers: tuple[int, int, int]) -> None:
    assert Version.parse(str(Version(*numbers))) == Version(*numbers)


@given(st.tuples(*[st.integers(0, 9)] * 3), st.tuples(*[st.integers(0, 9)] * 3))
def test_order_is_by_number(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    assert Version(*one).at_least(Version(*other)) == (one >= other)


@given(st.text(max_size=40))
def test_any_text_is_a_version_or_a_value_error(text: str) -> None:
    try:
        assert Version.parse(text).major >= 0
    except ValueError as error:
        assert "not a version" in str(error)


def test_a_prerelease_is_older_than_its_release() -> None:
    assert not Version.parse("3.255.0-beta.1").at_least(Version(3, 255, 0))
    assert Version.parse("3.255.1-beta.1").at_least(Version(3, 255, 0))


def test_what_go_says_is_read() -> None:
    assert go_version("go version go1.26.8 linux/amd64\n") == Version(1, 26, 8)
    with pytest.raises(ValueError, match="not the output"):
        go_version("command not found")


def test_the_pins_are_consistent() -> None:
    pinned = pins()
    assert pinned.version.at_least(pinned.minimum)
    assert pinned.go_toolchain.at_least(pinned.go_minimum)
    assert all(len(digest) == 64 and int(digest, 16) for digest in pinned.sha256.values())
    assert pinned.release_site.startswith("https://")
