"""Previews that know what an update would bring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from falaj.sandbox import urns
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.foresight import FORESIGHT_VARIABLE, Foresight, prepare
from falaj.sandbox.models import load
from falaj.sandbox.store import Store
from falaj.wire import UNKNOWN

BUCKET = "aws:s3/bucket:Bucket"
REGION = {"region": "me-central-1"}


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[tuple[Cloud, Foresight]]:
    """The sandbox's cloud with one bucket, and the foresight of a preview."""
    store = Store(tmp_path / "cloud.sqlite")
    cloud = Cloud(load("aws"), store)
    cloud.configure(REGION)
    cloud.create(urn(BUCKET, "old"), {"bucket": "old", **REGION})
    store.connection.execute(
        "INSERT INTO faults (action, nth, timeout, always) VALUES ('create', 1, 0, 1)"
    )
    prepare(tmp_path / "cloud.sqlite", tmp_path / "copy.sqlite")
    foresight = Foresight.of("aws", {FORESIGHT_VARIABLE: str(tmp_path / "copy.sqlite")})
    assert foresight is not None
    foresight.configure(REGION)
    yield cloud, foresight
    store.close()


def urn(token: str, name: str) -> str:
    return urns.make("dev", "shop", token, name)


def test_without_the_variable_there_is_none() -> None:
    assert Foresight.of("aws", {}) is None


def test_what_is_foreseen_is_what_will_be(clouds: tuple[Cloud, Foresight]) -> None:
    cloud, foresight = clouds
    inputs = {"bucket": "new", **REGION}
    foreseen = foresight.create(urn(BUCKET, "new"), inputs)
    # Nothing was made, and faults that somebody asked for wait for the update.
    assert [each.id for each in cloud.store.all(BUCKET)] == ["old"]
    cloud.store.connection.execute("DELETE FROM faults")
    assert foreseen == cloud.create(urn(BUCKET, "new"), inputs)


def test_unknown_inputs_are_not_foreseen(clouds: tuple[Cloud, Foresight]) -> None:
    _, foresight = clouds
    assert foresight.create(urn(BUCKET, "new"), {"bucket": UNKNOWN}) is None
    assert foresight.update(urn(BUCKET, "old"), "old", {}, {"bucket": UNKNOWN}) is None


def test_what_the_cloud_would_refuse_is_refused(clouds: tuple[Cloud, Foresight]) -> None:
    _, foresight = clouds
    with pytest.raises(SandboxError, match="old"):
        foresight.create(urn(BUCKET, "other"), {"bucket": "old", **REGION})


def test_a_replacement_beside_the_old_one_is_left_unknown(
    clouds: tuple[Cloud, Foresight],
) -> None:
    _, foresight = clouds
    assert foresight.create(urn(BUCKET, "old"), {"bucket": "old", **REGION}) is None


def test_a_change_is_foreseen(clouds: tuple[Cloud, Foresight]) -> None:
    cloud, foresight = clouds
    state = dict(cloud.store.all(BUCKET)[0].outputs)
    changed = {"bucket": "old", "tags": {"a": "b"}, **REGION}
    foreseen = foresight.update(urn(BUCKET, "old"), "old", state, changed)
    assert foreseen is not None
    assert foreseen["tags"] == {"a": "b"}
    assert "tags" not in cloud.store.all(BUCKET)[0].outputs
