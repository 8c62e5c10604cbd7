"""References in YAML files are rewritten to the mirror; the rest stays byte for byte."""

from __future__ import annotations

import string

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.stacks.errors import StackError
from falaj.stacks.images.items import EMPTY, Item, items
from falaj.stacks.images.rewrite import Rewritten, rewrite

DIGEST = "sha256:" + "a" * 64
MIRROR = "registry.example.ae/falaj"
KNOWN = [
    Item("images", "kueue", "registry.k8s.io/kueue/kueue", "v1", "registry.k8s.io/kueue/kueue",
         DIGEST, "", ()),
    Item("images", "envoy", "docker.io/envoyproxy/envoy", "v2", "docker.io/envoyproxy/envoy",
         None, "", ()),
]  # fmt: skip
KUEUE = f"{MIRROR}/registry.k8s.io/kueue/kueue:v1@{DIGEST}"


def done(text: str) -> Rewritten:
    return rewrite(text, KNOWN, MIRROR)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("image: registry.k8s.io/kueue/kueue:v1", f"image: {KUEUE}"),
        ("image: 'registry.k8s.io/kueue/kueue:v1' # why", f"image: '{KUEUE}' # why"),
        ('image: "registry.k8s.io/kueue/kueue"', f'image: "{KUEUE}"'),
        (f"image: registry.k8s.io/kueue/kueue@{DIGEST}", f"image: {KUEUE}"),
        ("image: envoyproxy/envoy:v2", f"image: {MIRROR}/docker.io/envoyproxy/envoy:v2"),
        ("args:\n- --image\n- registry.k8s.io/kueue/kueue:v1", f"args:\n- --image\n- {KUEUE}"),
        (
            "repository: registry.k8s.io/kueue/kueue\ntag: v1",
            f"repository: {MIRROR}/registry.k8s.io/kueue/kueue\ntag: v1",
        ),
        (
            'image: {registry: registry.k8s.io, repository: kueue/kueue, tag: v1, digest: ""}',
            "image: {registry: registry.example.ae, repository: "
            f'falaj/registry.k8s.io/kueue/kueue, tag: v1, digest: "{DIGEST}"}}',
        ),
        ("a: &x registry.k8s.io/kueue/kueue:v1\nb: *x", f"a: &x {KUEUE}\nb: *x"),
        ("a: 1\n---\nimage: registry.k8s.io/kueue/kueue:v1\n", f"a: 1\n---\nimage: {KUEUE}\n"),
        ("image: !!str registry.k8s.io/kueue/kueue:v1", f"image: !!str {KUEUE}"),
        ("# image: registry.k8s.io/kueue/kueue:v1\na: 1", None),
        (f"image: {KUEUE}", None),
        ("host: registry.k8s.io\nport: 5000\nempty:\n", None),
    ],
)  # fmt: skip
def test_references_become_the_mirrors(given: str, expected: str | None) -> None:
    result = done(given)
    assert result.text == (given if expected is None else expected)
    assert not result.unknown
    assert done(result.text).text == result.text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("image: quay.io/other/app:v1", "line 1: quay.io/other/app:v1 is not in the bill"),
        ("initImage: quay.io/other/app", "is not in the bill"),
        ("image: registry.k8s.io/kueue/kueue:v0", "has the tag v0; the mirror holds v1"),
        (f"image: registry.k8s.io/kueue/kueue:v1@{DIGEST[:-1]}b", "has the digest"),
        ("image: {registry: quay.io, repository: other/app}", "quay.io/other/app is not in the"),
        ("x: |-\n  registry.k8s.io/kueue/kueue:v1\n", "is in a block of text"),
    ],
)
def test_what_the_mirror_does_not_hold_stays_and_is_named(given: str, said: str) -> None:
    result = done(given)
    assert result.text == given
    assert len(result.unknown) == 1
    assert said in result.unknown[0]


def test_what_is_no_yaml_is_refused() -> None:
    with pytest.raises(StackError, match="not YAML"):
        done("a: [")


names = st.text(string.ascii_lowercase, min_size=1, max_size=4)
leaves = (
    st.sampled_from(["registry.k8s.io/kueue/kueue:v1", "registry.k8s.io", "envoyproxy/envoy"])
    | st.text(max_size=6) | st.integers() | st.none() | st.booleans()
)  # fmt: skip
documents = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        names | st.sampled_from(["image", "registry", "repository", "tag", "digest"]), inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(documents, st.sampled_from([None, "'", '"']))
def test_only_references_change_and_a_second_time_nothing(
    document: object, style: str | None
) -> None:
    text = yaml.safe_dump(document, default_style=style, allow_unicode=True)
    result = done(text)
    assert len(list(_leaves(yaml.safe_load(result.text)))) == len(list(_leaves(document)))
    assert done(result.text).text == result.text


def _leaves(value: object) -> list[object]:
    if isinstance(value, dict):
        return [leaf for each in value.values() for leaf in _leaves(each)]
    if isinstance(value, list):
        return [leaf for each in value for leaf in _leaves(each)]
    return [value]


def test_the_whole_bill_of_materials_can_be_rewritten() -> None:
    known = [each for each in items(EMPTY) if each.source and each.kind == "images"]
    text = "".join(f"- image: {each.upstream}\n" for each in known)
    result = rewrite(text, known, MIRROR)
    assert not result.unknown
    assert len(result.changes) == len(known)
