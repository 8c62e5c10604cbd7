import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.package import FileEntry, Manifest, canonical, check_fields

ENTRY = FileEntry(10, "a" * 64, "b" * 64, 4)
FIELDS = {"dataset": {}, "lineage": {"run": "r"}, "inputs": [], "outputs": []}


def manifest() -> Manifest:
    return Manifest("digits", 3, "2026-01-01T00:00:00+00:00", "signer", {"m.onnx": ENTRY}, FIELDS)


def changed(path: str, value: Any) -> bytes:
    document = manifest().to_json()
    *parents, last = path.split("/")
    target = document
    for name in parents:
        target = target[name]
    target[last] = value
    return canonical(document)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "falaj.package/2"),
        ("model", "../digits"),
        ("model", ""),
        ("model", "audit.jsonl"),
        ("version", 0),
        ("version", -1),
        ("version", True),
        ("version", "3"),
        ("version", 1.0),
        ("created", None),
        ("signer", 1),
        ("files", []),
        ("files/..", ENTRY.to_json()),
        ("files/a~1b", ENTRY.to_json()),
        ("files/.hidden", ENTRY.to_json()),
        ("files/m.onnx", {}),
        ("files/m.onnx/size", -1),
        ("files/m.onnx/chunk", 0),
        ("files/m.onnx/chunk", 1 << 40),
        ("files/m.onnx/sha256", "A" * 64),
        ("files/m.onnx/sha256_encrypted", "a" * 63),
        ("files/m.onnx/extra", 1),
        ("dataset", None),
        ("inputs", {}),
        ("surprise", 1),
    ],
)
def test_wrong_fields_are_refused(path: str, value: Any) -> None:
    with pytest.raises(IntegrityError):
        Manifest.from_bytes(changed(path, value), "the manifest")


@pytest.mark.parametrize(
    "name", ["a/b", "../x", "/etc/passwd", "a\0b", "a\nb", "", ".", "..", "é"]
)
def test_file_names_that_are_paths_are_refused(name: str) -> None:
    document = manifest().to_json()
    document["files"] = {name: ENTRY.to_json()}
    with pytest.raises(IntegrityError, match="can't name a file"):
        Manifest.from_bytes(canonical(document), "the manifest")


@pytest.mark.parametrize("name", sorted({*FIELDS, "format", "model", "version", "files"}))
def test_missing_fields_are_refused(name: str) -> None:
    document = manifest().to_json()
    del document[name]
    with pytest.raises(IntegrityError, match=name):
        Manifest.from_bytes(canonical(document), "the manifest")


def test_other_encodings_of_the_same_document_are_refused() -> None:
    document = manifest().to_json()
    for data in (
        json.dumps(document).encode(),
        canonical(document) + b"\n",
        b'{"model":"other",' + canonical(document)[1:],
        canonical(document).replace(b'"version":3', b'"version":3,"version":3'),
    ):
        with pytest.raises(IntegrityError):
            Manifest.from_bytes(data, "the manifest")


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        Manifest.from_bytes(data, "the manifest")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}, b"bytes"])
def test_what_json_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(WorkloadError, match="can't hold"):
        canonical({"value": value})


def test_fields_are_checked_by_name_and_type() -> None:
    with pytest.raises(WorkloadError, match="unknown field 'colour'; allowed: dataset"):
        check_fields({**FIELDS, "colour": "red"}, "the fields")
    with pytest.raises(WorkloadError, match="unknown field 'version'"):
        check_fields({**FIELDS, "version": 9}, "the fields")
    with pytest.raises(WorkloadError, match="inputs is an object; allowed: a list"):
        check_fields({**FIELDS, "inputs": {}}, "the fields")
    with pytest.raises(WorkloadError, match="lacks lineage, inputs"):
        check_fields({"dataset": {}, "outputs": []}, "the fields")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_round_trip(metrics: dict[str, Any]) -> None:
    original = Manifest(
        "digits", 1, "now", "me", {"m.onnx": ENTRY}, {**FIELDS, "metrics": metrics}
    )
    data = original.to_bytes()
    again = Manifest.from_bytes(data, "the manifest")
    assert again == original
    assert again.to_bytes() == data
    assert again.files["m.onnx"].encrypted_size == 51 + 10 + 3 * 16
