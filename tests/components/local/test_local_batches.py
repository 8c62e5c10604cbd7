"""Predictions through the provider: made once, made anew for what changed, removed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime import proto

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.resources.batch_inference import BatchInferenceHandler
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site with a published model of a table."""
    site = Site(tmp_path_factory.mktemp("batches") / "site")
    site.publish(models.table(), name="table")
    return site


@pytest.fixture
def inputs(made: Site, tmp_path: Path) -> dict[str, Any]:
    table = tmp_path / "rows.csv"
    table.write_text("id,age,city\n7,1,x\n8,,y\n")
    return {
        "site": str(made.root),
        "name": "customers",
        "inputs": [str(table)],
        "model": "table",
        "version": 1,
        "packageDigest": "d" * 64,
        "keyring": str(made.root / "keyring"),
    }


def test_life(provider: Any, inputs: dict[str, Any]) -> None:
    _, expected = provider.create("BatchInference", inputs, preview=True)
    named, state = provider.create("BatchInference", inputs)
    assert state["path"] == expected["path"]
    assert (state["rows"], state["badRows"]) == (2, 0)
    path = Path(state["path"])
    assert path.name == "customers.csv.sealed"
    assert b"label" not in path.read_bytes()
    none = proto.DiffResponse.DIFF_NONE
    assert provider.diff("BatchInference", named, state, inputs).changes == none
    assert provider.read("BatchInference", named, state)[1]["digest"] == state["digest"]
    # A change of what decides nothing predicts nothing again.
    before = path.stat().st_ino
    changed = provider.diff("BatchInference", named, state, {**inputs, "threads": 2})
    assert list(changed.replaces) == []
    provider.update("BatchInference", named, state, {**inputs, "threads": 2})
    assert path.stat().st_ino == before
    # The file is another one: another result beside this one, until this one goes.
    Path(inputs["inputs"][0]).write_text("id,age,city\n7,1,x\n")
    changed = provider.diff("BatchInference", named, state, inputs)
    assert list(changed.replaces) == ["inputsSha256"]
    again, other = provider.create("BatchInference", inputs)
    assert again != named
    assert other["rows"] == 1
    provider.delete("BatchInference", named, state)
    assert not path.parent.exists()
    assert Path(other["path"]).is_file()
    provider.delete("BatchInference", again, {**other, "retain": True})
    assert Path(other["path"]).is_file()
    # What was retained is adopted, as it is whole.
    before = Path(other["path"]).stat().st_ino
    _, adopted = provider.create("BatchInference", inputs)
    assert adopted["digest"] == other["digest"]
    assert Path(other["path"]).stat().st_ino == before


def test_bad_rows_are_refused_in_the_workloads_words(
    provider: Any, inputs: dict[str, Any]
) -> None:
    Path(inputs["inputs"][0]).write_text("age,city\nold,x\n1,y\n")
    with pytest.raises(grpc.RpcError) as caught:
        provider.create("BatchInference", inputs)
    assert "line 2: column 'age': 'old' isn't a number" in str(caught.value.details())
    _, state = provider.create(
        "BatchInference", {**inputs, "skipBadRows": True, "format": "jsonl", "plain": True}
    )
    assert (state["rows"], state["badRows"]) == (1, 1)
    assert json.loads(Path(state["path"]).read_text())["label"] == "y"


@pytest.mark.parametrize(
    ("change", "key", "words"),
    [
        ({"inputs": []}, "inputs", "at least one"),
        ({"inputs": ["rows.csv"]}, "inputs", "absolute paths"),
        ({"inputs": ["/nowhere/rows.csv"]}, "inputs", "there is no file or folder"),
        ({"format": "xlsx"}, "format", "csv, jsonl, parquet"),
        ({"name": "../up"}, "name", "lower-case letters"),
        ({"threads": 0}, "threads", "from 1 to 256"),
    ],
)
def test_what_can_not_be_used_is_refused(
    inputs: dict[str, Any], change: dict[str, Any], key: str, words: str
) -> None:
    with pytest.raises(InvalidInputsError) as caught:
        BatchInferenceHandler().check({**inputs, **change}, {})
    assert words in {r.property: r.reason for r in caught.value.errors}[key]


def test_a_folder_is_another_input_once_a_file_is(inputs: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.csv").write_text("age,city\n1,x\n")
    handler = BatchInferenceHandler()
    digests = [handler.check({**inputs, "inputs": [str(folder)]}, {})["inputsSha256"]]
    (folder / "b.csv").write_text("age,city\n1,x\n")
    digests.append(handler.check({**inputs, "inputs": [str(folder)]}, {})["inputsSha256"])
    (folder / "b.csv").rename(folder / "c.csv")
    digests.append(handler.check({**inputs, "inputs": [str(folder)]}, {})["inputsSha256"])
    assert len(set(digests)) == 3
