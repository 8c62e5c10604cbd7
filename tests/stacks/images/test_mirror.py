"""Copying into a mirror, between two real registries on loopback."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from falaj.stacks.images.crane import Crane, Helm
from falaj.stacks.images.mirror import Mirror
from tests.stacks.images.registries import EMPTY_DIGEST, Registry, crane, item


def mirror(registry: Registry, said: list[str], *, dry_run: bool = False) -> Mirror:
    return Mirror(f"{registry.address}/falaj", Crane(), Helm(), said.append, dry_run=dry_run)


def test_a_mirror_gets_images_by_digest_with_all_platforms(
    upstream: Registry, target: Registry
) -> None:
    upstream.image("app", "amd64", tag="amd64")
    upstream.image("app", "arm64", tag="arm64")
    digest = upstream.index("app", ["app:amd64", "app:arm64"])
    outcome = mirror(target, []).fill([item(upstream, "app", digest)])
    assert outcome.copied == ["app"]
    assert outcome.exit_status == 0
    assert target.digest(f"{target.address}/falaj/mirrored/app:v1") == digest
    crane("validate", "--remote", f"{target.address}/falaj/mirrored/app@{digest}")


def test_a_second_run_copies_nothing(upstream: Registry, target: Registry) -> None:
    wanted = [item(upstream, name, upstream.image(name, name)) for name in ("one", "two")]
    assert mirror(target, []).fill(wanted).copied == ["one", "two"]
    again = mirror(target, []).fill(wanted)
    assert (again.copied, again.there) == ([], ["one", "two"])


def test_a_dry_run_changes_nothing(upstream: Registry, target: Registry) -> None:
    wanted = [item(upstream, "one", upstream.image("one", "one"))]
    outcome = mirror(target, [], dry_run=True).fill(wanted)
    assert outcome.missing == ["one"]
    assert Crane().digest(f"{target.address}/falaj/mirrored/one:v1") is None


def test_a_tag_moved_upstream_is_noticed_and_what_was_pinned_is_copied(
    upstream: Registry, target: Registry
) -> None:
    pinned = upstream.image("app", "the release")
    assert upstream.image("app", "a trojan") != pinned
    said: list[str] = []
    outcome = mirror(target, said).fill([item(upstream, "app", pinned)])
    assert outcome.moved == ["app"]
    assert target.digest(f"{target.address}/falaj/mirrored/app:v1") == pinned
    assert "stands for something else by now" in "\n".join(said)


def test_another_image_under_the_tag_of_the_mirror_is_refused(
    upstream: Registry, target: Registry
) -> None:
    digest = upstream.image("app", "the release")
    other = target.image("falaj/mirrored/app", "somebody's own")
    outcome = mirror(target, []).fill([item(upstream, "app", digest)])
    assert f"is {other}, not {digest}" in outcome.failed["app"]
    assert target.digest(f"{target.address}/falaj/mirrored/app:v1") == other


def test_a_registry_that_keeps_something_else_is_not_trusted(
    upstream: Registry, target: Registry
) -> None:
    digest = upstream.image("app", "the release")
    upstream.image("other", "other")

    class Careless(Crane):
        def copy(self, source: str, target: str) -> None:
            super().copy(f"{upstream.address}/other:v1", target)

    careless = Mirror(target.address, Careless(), Helm(), lambda line: None)
    outcome = careless.fill([item(upstream, "app", digest)])
    assert "after copying, not" in outcome.failed["app"]
    assert outcome.exit_status == 1


def test_unknown_digests_and_digests_that_nobody_has_are_refused_and_the_rest_is_copied(
    upstream: Registry, target: Registry
) -> None:
    good = upstream.image("good", "good")
    upstream.image("gone", "gone")
    outcome = mirror(target, []).fill([
        item(upstream, "unknown", None),
        item(upstream, "gone", EMPTY_DIGEST),
        item(upstream, "good", good),
    ])  # fmt: skip
    assert outcome.copied == ["good"]
    assert "falaj images pin" in outcome.failed["unknown"]
    assert f"has no {upstream.address}/gone@{EMPTY_DIGEST}" in outcome.failed["gone"]


def test_after_a_failure_the_next_run_goes_on_with_what_is_missing(
    upstream: Registry, target: Registry
) -> None:
    wanted = [item(upstream, name, upstream.image(name, name)) for name in ("one", "two", "three")]
    blob = upstream.blob(upstream.layer_of(f"{upstream.address}/two:v1"))
    away = blob.rename(blob.with_name("away"))
    first = mirror(target, []).fill(wanted)
    assert first.copied == ["one", "three"]
    assert list(first.failed) == ["two"]
    away.rename(blob)
    second = mirror(target, []).fill(wanted)
    assert (second.copied, second.there) == (["two"], ["one", "three"])


def test_after_a_kill_the_next_run_goes_on(upstream: Registry, target: Registry) -> None:
    names = [f"image{number}" for number in range(6)]
    wanted = [item(upstream, name, upstream.image(name, name * 50_000)) for name in names]
    program = (
        "from falaj.stacks.images.crane import Helm;"
        "from falaj.stacks.images.crane import Crane; "
        "from falaj.stacks.images.items import Item; "
        "from falaj.stacks.images.mirror import Mirror;"
        f"Mirror('{target.address}/falaj', Crane(), Helm(), lambda l: print(l, flush=True))"
        f".fill({wanted!r})"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).parents[3],
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "copied" in process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    outcome = mirror(target, []).fill(wanted)
    assert not outcome.failed
    assert "image0" in outcome.there
    assert sorted(outcome.there + outcome.copied) == names


def test_charts_of_registries_are_copied_like_images(upstream: Registry, target: Registry) -> None:
    digest = upstream.chart("demo", b"an archive", tag="v1")
    outcome = mirror(target, []).fill([item(upstream, "demo", digest, kind="charts")])
    assert outcome.copied == ["demo"]
    assert target.digest(f"{target.address}/falaj/mirrored/demo:v1") == digest


def test_who_is_not_let_in_is_told_how_to_log_in(
    upstream: Registry, refusing: str, target: Registry
) -> None:
    del target
    digest = upstream.image("app", "app")
    closed = Mirror(refusing, Crane(), Helm(), lambda line: None)
    outcome = closed.fill([item(upstream, "app", digest)])
    assert f"{refusing} refused access" in outcome.failed["app"]
    assert f"crane auth login {refusing}" in outcome.failed["app"]


def test_a_registry_out_of_reach_is_named(upstream: Registry) -> None:
    digest = upstream.image("app", "app")
    nobody = Mirror("127.0.0.1:9", Crane(), Helm(), lambda line: None)
    outcome = nobody.fill([item(upstream, "app", digest)])
    assert "127.0.0.1:9 can't be reached" in outcome.failed["app"]
