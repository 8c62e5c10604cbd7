from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store

CHUNK = 64
FILES = {"model.onnx": bytes(range(256)), "card.md": b"# digits\n"}


@pytest.fixture
def keyring(tmp_path: Path) -> KeyRing:
    return KeyRing.create(tmp_path / "keyring")


@pytest.fixture
def other_keyring(tmp_path: Path) -> KeyRing:
    return KeyRing.create(tmp_path / "other-keyring")


@pytest.fixture
def fields() -> dict[str, Any]:
    return {
        "dataset": {"digest": "d" * 64},
        "lineage": {"run": "r" * 64, "dataset": "d" * 64},
        "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}],
        "outputs": [{"name": "label", "datatype": "INT64", "shape": [-1]}],
        "metrics": {"accuracy": 0.99},
        "data_class": "internal",
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "registry")


@pytest.fixture
def package(store: Store, keyring: KeyRing, fields: dict[str, Any]) -> Package:
    """Version 1 of digits; model.onnx has four whole chunks."""
    store.publish("digits", FILES, fields, keyring, chunk_bytes=CHUNK)
    return store.load("digits", 1, keyring, keyring.verify_key())
