"""Previews that know what an update would bring."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from falaj.sandbox import urns
from falaj.sandbox.activation import PREDICTION_VARIABLE
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.models import load
from falaj.sandbox.prediction import Prediction
from falaj.sandbox.store import Store, copy_without_faults
from falaj.wire import UNKNOWN

BUCKET = "aws:s3/bucket:Bucket"
REGION = {"region": "me-central-1"}


@pytest.fixture
def clouds(tmp_path: Path) -> Iterator[tuple[Cloud, Prediction]]:
    """The sandbox's cloud with one bucket, and the prediction of a preview."""
    store = Store(tmp_path / "cloud.sqlite")
    cloud = Cloud(load("aws"), store)
    cloud.configure(REGION)
    cloud.create(urn(BUCKET, "old"), {"bucket": "old", **REGION})
    store.connection.execute(
        "INSERT INTO faults (action, nth, timeout, always) VALUES ('create', 1, 0, 1)"
    )
    copy_without_faults(tmp_path / "cloud.sqlite", tmp_path / "copy.sqlite")
    prediction = Prediction.of("aws", {PREDICTION_VARIABLE: str(tmp_path / "copy.sqlite")})
    assert prediction is not None
    prediction.configure(REGION)
    yield cloud, prediction
    store.close()


def urn(token: str, name: str) -> str:
    return urns.make("dev", "shop", token, name)


def test_without_the_variable_there_is_none() -> None:
    assert Prediction.of("aws", {}) is None


def test_what_is_predicted_is_what_will_be(clouds: tuple[Cloud, Prediction]) -> None:
    cloud, prediction = clouds
    inputs = {"bucket": "new", **REGION}
    predicted = prediction.create(urn(BUCKET, "new"), inputs)
    # Nothing was made, and faults that somebody asked for wait for the update.
    assert [each.id for each in cloud.store.all(BUCKET)] == ["old"]
    cloud.store.connection.execute("DELETE FROM faults")
    assert predicted == cloud.create(urn(BUCKET, "new"), inputs)


def test_unknown_inputs_are_not_predicted(clouds: tuple[Cloud, Prediction]) -> None:
    _, prediction = clouds
    assert prediction.create(urn(BUCKET, "new"), {"bucket": UNKNOWN}) is None
    assert prediction.update(urn(BUCKET, "old"), "old", {}, {"bucket": UNKNOWN}) is None


def test_what_the_cloud_would_refuse_is_refused(clouds: tuple[Cloud, Prediction]) -> None:
    _, prediction = clouds
    with pytest.raises(SandboxError, match="old"):
        prediction.create(urn(BUCKET, "other"), {"bucket": "old", **REGION})


def test_a_replacement_beside_the_old_one_is_left_unknown(
    clouds: tuple[Cloud, Prediction],
) -> None:
    _, prediction = clouds
    assert prediction.create(urn(BUCKET, "old"), {"bucket": "old", **REGION}) is None


def test_a_change_is_predicted(clouds: tuple[Cloud, Prediction]) -> None:
    cloud, prediction = clouds
    state = dict(cloud.store.all(BUCKET)[0].outputs)
    changed = {"bucket": "old", "tags": {"a": "b"}, **REGION}
    predicted = prediction.update(urn(BUCKET, "old"), "old", state, changed)
    assert predicted is not None
    assert predicted["tags"] == {"a": "b"}
    assert "tags" not in cloud.store.all(BUCKET)[0].outputs
