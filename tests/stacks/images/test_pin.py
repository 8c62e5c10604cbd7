"""Asking registries for digests, and the lock file that keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.kubernetes.bill_of_materials import images
from falaj.stacks.images.crane import Crane, Helm
from falaj.stacks.images.items import EMPTY, Lock, Locked, LockError, load, read_lock, save
from falaj.stacks.images.mirror import Pinned, pin
from tests.stacks.images.registries import EMPTY_DIGEST, Registry, item

TODAY = "2026-11-21"
OTHER = "sha256:" + "1" * 64


def ask(*wanted: object, registry: str | None = None, accept: tuple[str, ...] = ()) -> Pinned:
    return pin(
        wanted, EMPTY, registry=registry, today=TODAY, crane=Crane(), helm=Helm(), accept=accept
    )  # type: ignore[arg-type]


def test_digests_come_from_the_registry(upstream: Registry) -> None:
    digest = upstream.image("app", "app")
    result = ask(item(upstream, "app", None))
    assert result.found == ["app"]
    assert result.lock.images["app"] == Locked(f"{upstream.address}/app:v1", digest, TODAY)


def test_digests_of_our_own_images_come_from_the_mirror(upstream: Registry) -> None:
    digest = upstream.image("falaj/mirrored/app", "app")
    result = ask(item(upstream, "app", None), registry=f"{upstream.address}/falaj")
    assert result.lock.images["app"].digest == digest


def test_a_moved_tag_is_not_pinned_until_it_is_accepted(upstream: Registry) -> None:
    digest = upstream.image("app", "app")
    moved = ask(item(upstream, "app", OTHER))
    assert moved.lock.images == {}
    assert (
        moved.moved["app"]
        == f"{upstream.address}/app:v1 stands for {digest} now; pinned is " + OTHER
    )
    assert ask(item(upstream, "app", OTHER), accept=("app",)).lock.images["app"].digest == digest


def test_one_that_is_gone_does_not_keep_the_others_from_being_pinned(upstream: Registry) -> None:
    upstream.image("app", "app")
    result = ask(item(upstream, "gone", None), item(upstream, "app", None))
    assert result.found == ["app"]
    assert "is not there" in result.failed["gone"]


def test_a_registry_that_lets_nobody_in_is_explained(refusing: str) -> None:
    result = ask(item(Registry(refusing, Path()), "app", None))
    assert f"crane auth login {refusing}" in result.failed["app"]


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    lock = Lock({"kueue": Locked("registry/kueue:v1", OTHER, TODAY)}, {})
    save(tmp_path / "lock.yaml", lock)
    assert load(tmp_path / "lock.yaml") == lock
    assert read_lock(tmp_path / "lock.yaml") == {"kueue": OTHER}
    assert list(tmp_path.iterdir()) == [tmp_path / "lock.yaml"]


ENTRY = {"reference": "r/kueue:v1", "digest": OTHER, "seen": TODAY}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[]", "given list; allowed: a mapping with images, charts"),
        ("images: [kueue]", "images: given ['kueue']; allowed: entries by name"),
        ("image: {}", "image: is not a part of a lock file"),
        ("images: {kueue: sha256}", "images.kueue: given 'sha256'; allowed: a mapping"),
        (yaml.safe_dump({"images": {"kueu": ENTRY}}), "images.kueu: is not in the bill"),
        (
            yaml.safe_dump({"images": {"kueue": {**ENTRY, "digest": "sha256:12"}}}),
            "images.kueue.digest: given 'sha256:12'; allowed: sha256: and 64",
        ),
        (
            yaml.safe_dump({"images": {"kueue": {**ENTRY, "x": "y"}}}),
            "images.kueue.x: is not known",
        ),
        (yaml.safe_dump({"images": {"kueue": {"digest": OTHER}}}), "images.kueue.seen: missing"),
        (f"images: {{kueue: {{reference: r, digest: '{OTHER}', seen: 2026-11-21}}}}", "in quotes"),
        ("images: {", "cannot be read as a lock file"),
        ("\0", "cannot be read as a lock file"),
    ],
)
def test_bad_lock_files_are_refused_with_the_key(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "lock.yaml"
    path.write_text(content)
    with pytest.raises(LockError) as error:
        read_lock(path)
    assert said in str(error.value)
    assert str(path) in str(error.value)


def test_a_missing_lock_file_says_how_to_write_one(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="falaj images pin --lock"):
        read_lock(tmp_path / "lock.yaml")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just(EMPTY_DIGEST),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["images", "charts", "kueue", "digest", "reference", "seen", "x"])
            | st.integers(),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_whatever_is_in_a_lock_file_it_is_a_lock_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: object
) -> None:
    path = tmp_path_factory.mktemp("lock") / "lock.yaml"
    path.write_text(yaml.safe_dump(content))
    try:
        found = read_lock(path)
    except LockError:
        return
    assert all(name in images() and digest == EMPTY_DIGEST for name, digest in found.items())
