"""Images on a disk: written from one registry, read into another, nothing changed between."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.components.kubernetes import bill_of_materials
from falaj.stacks.errors import StackError
from falaj.stacks.images.archive import Archive
from falaj.stacks.images.crane import Crane, Helm
from falaj.stacks.images.items import Item
from tests.stacks.images.registries import Registry, item

TODAY = "2026-11-21"
#: Names that the bill of materials has: the contents of an archive are checked against it.
NAMES = ("kueue", "jobset", "keda")


def archive(folder: Path) -> Archive:
    return Archive(folder / "disk", Crane(), Helm(), lambda line: None)


@pytest.fixture
def wanted(upstream: Registry) -> list[Item]:
    upstream.image("kueue", "amd64", tag="amd64")
    upstream.image("kueue", "arm64", tag="arm64")
    digests = [upstream.index("kueue", ["kueue:amd64", "kueue:arm64"])]
    digests += [upstream.image(name, name) for name in NAMES[1:]]
    return [item(upstream, *each) for each in zip(NAMES, digests, strict=True)]


def test_a_disk_carries_images_and_charts_unchanged(
    wanted: list[Item], upstream: Registry, target: Registry, tmp_path: Path
) -> None:
    chart = upstream.chart("keda-chart", b"an archive", tag="v1")
    wanted.append(Item("charts", "keda", f"{upstream.address}/keda-chart", "v1", "charts/keda",
                       chart, "MIT", ("keda",)))  # fmt: skip
    assert not archive(tmp_path).fill(wanted, today=TODAY).failed
    assert archive(tmp_path).fill(wanted, today=TODAY).copied == []
    outcome = archive(tmp_path).send(wanted, target.address)
    assert not outcome.failed
    for each in wanted:
        assert target.digest(each.at(target.address)) == each.digest
    assert archive(tmp_path).send(wanted, target.address).copied == []


def test_what_is_complete_stays_when_one_fails(
    wanted: list[Item], upstream: Registry, tmp_path: Path
) -> None:
    blob = upstream.blob(upstream.layer_of(f"{upstream.address}/jobset:v1"))
    away = blob.rename(blob.with_name("away"))
    outcome = archive(tmp_path).fill(wanted, today=TODAY)
    assert list(outcome.failed) == ["jobset"]
    assert sorted(archive(tmp_path).contents().images) == ["keda", "kueue"]
    away.rename(blob)
    assert archive(tmp_path).fill(wanted, today=TODAY).copied == ["jobset"]


def test_a_disk_that_was_tampered_with_is_not_sent(
    wanted: list[Item], upstream: Registry, target: Registry, tmp_path: Path
) -> None:
    archive(tmp_path).fill(wanted, today=TODAY)
    layer = upstream.layer_of(f"{upstream.address}/keda:v1").partition(":")[2]
    (tmp_path / "disk" / "images" / "keda" / "blobs" / "sha256" / layer).write_bytes(b"other")
    (tmp_path / "disk" / "images" / "jobset" / "index.json").write_text("{}")
    outcome = archive(tmp_path).send(wanted, target.address)
    assert outcome.copied == ["kueue"]
    assert "it was changed; not sent" in outcome.failed["keda"]
    assert "no OCI layout" in outcome.failed["jobset"]


def test_a_folder_without_contents_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="is no archive"):
        archive(tmp_path).contents()


def test_our_own_images_are_built_in_the_closed_network(tmp_path: Path) -> None:
    own = Item(
        "images", "falaj-inference", "", "1", "falaj/inference", "sha256:" + "1" * 64, "", ()
    )
    assert "built here" in archive(tmp_path).fill([own], today=TODAY).failed["falaj-inference"]


def test_the_names_are_those_of_the_bill_of_materials() -> None:
    assert set(NAMES) <= bill_of_materials.images().keys()
