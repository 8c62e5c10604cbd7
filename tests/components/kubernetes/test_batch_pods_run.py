"""The rendered pods of a batch run as processes: shares of sealed predictions, by a package that
comes as images."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from falaj.workloads.batch.prediction import opened, read_record
from falaj.workloads.registry.keyring import KeyRing, pack
from falaj.workloads.registry.package import open_package
from falaj.workloads.registry.store import Store
from tests.components.kubernetes.pod_processes import Machine, finish
from tests.components.kubernetes.test_batch_inference import rendered
from tests.components.kubernetes.training_jobs import OTHER_DIGEST, pod_of
from tests.workloads.inference import models
from tests.workloads.registry.images import mounted, send

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_two_shares_predict_all_rows_and_seal_them(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    model = models.table()
    store = Store(tmp_path / "registry", ring)
    path = store.publish("churn", {"model.onnx": model}, models.fields(model), ring).path
    sent = send(open_package(path, "churn", 1, ring, ring.verify_key()), tmp_path / "sent")
    # The longer one first, as the other is its beginning.
    names = {
        "/package-keys": str(mounted([sent.keys], tmp_path / "wrapped")),
        "/package": str(mounted([sent.image], tmp_path / "sealed")),
    }
    secret = tmp_path / "run/falaj/secret"
    secret.mkdir(parents=True)
    (secret / "keyring.tar").write_bytes(pack(ring))
    (tmp_path / "run/falaj/work").mkdir()
    rows = tmp_path / "data/customers"
    rows.mkdir(parents=True)
    text = "id,age,city\n" + "".join(f"{i},{i},city {i % 5}\n" for i in range(9_000))
    (rows / "a.csv").write_text(text)
    (rows / "b.csv").write_text("id,age,city\n9000,old,x\n9001,7,y\n")
    objects = rendered(
        version=1, inputs=["customers"], shares=2, format="csv", keep=["id"], skip_bad_rows=True,
        keys_digest=OTHER_DIGEST,
    )  # fmt: skip
    machine = Machine(tmp_path, names)
    for index in (0, 1):
        assert finish([machine.start(pod_of(objects), index)]) == [0], machine.log(
            index
        ).read_text()
    found: list[dict[str, str]] = []
    for index in (0, 1):
        sealed = tmp_path / f"runs/scores/share-{index}.csv.sealed"
        plain = b"".join(opened(sealed, ring)).decode()
        found += csv.DictReader(io.StringIO(plain))
    assert [int(row["id"]) for row in found] == [*range(9_000), 9_001]
    assert [row["label"] for row in found[:6]] == [f"city {i % 5}" for i in range(6)]
    record = read_record(tmp_path / "runs/scores/share-1.csv")
    assert (record["bad_rows"], record["options"]["shard"]) == (1, [1, 2])
    # A pod that is started again does nothing twice.
    before = (tmp_path / "runs/scores/share-1.csv.sealed").stat().st_ino
    assert finish([machine.start(pod_of(objects), 1)]) == [0]
    assert (tmp_path / "runs/scores/share-1.csv.sealed").stat().st_ino == before
