"""A package that differs in anything from what was published is refused."""

import hashlib
import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import write_atomic
from falaj.workloads.registry.keyring import KeyRing, sign
from falaj.workloads.registry.package import PAYLOAD_TYPE, Package, file_context
from falaj.workloads.registry.sealed import HEADER_BYTES, TAG_BYTES
from falaj.workloads.registry.store import Store

CHUNK = 64
STEP = CHUNK + TAG_BYTES


def check(store: Store, keyring: KeyRing, version: int = 1, model: str = "digits") -> Package:
    return store.verify(model, version, keyring, keyring.verify_key())


def sign_again(package: Package, keyring: KeyRing, manifest: bytes) -> None:
    """Sign as somebody who holds the signing key would."""
    write_atomic(package.path / "manifest.json", manifest)
    signature = sign(manifest, PAYLOAD_TYPE, keyring.signing_key())
    write_atomic(package.path / "manifest.sig", signature)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sig", "keys.json"])
def test_every_flipped_byte_is_refused(
    store: Store, package: Package, keyring: KeyRing, name: str
) -> None:
    path = package.path / name
    good = path.read_bytes()
    refused = 0
    for position in range(len(good)):
        changed = bytearray(good)
        changed[position] ^= 1
        if name != "manifest.json" and same_json(good, bytes(changed)):
            continue  # white space outside of the signed or authenticated values
        path.write_bytes(changed)
        with pytest.raises(WorkloadError):
            check(store, keyring)
        refused += 1
    assert refused > len(good) * 0.6
    path.write_bytes(good)
    check(store, keyring)


def same_json(one: bytes, other: bytes) -> bool:
    try:
        return json.loads(one) == json.loads(other)
    except ValueError:
        return False


@pytest.mark.parametrize(
    "position",
    [0, 7, 8, 39, 40, 46, 47, 50, HEADER_BYTES, HEADER_BYTES + CHUNK, HEADER_BYTES + STEP - 1,
     HEADER_BYTES + STEP, HEADER_BYTES + 3 * STEP, -TAG_BYTES - 1, -1],
    ids=["magic", "magic-end", "salt", "salt-end", "prefix", "prefix-end", "chunk-size",
         "chunk-size-end", "first-chunk", "first-tag", "first-tag-end", "second-chunk",
         "last-chunk", "last-byte", "last-tag"],
)  # fmt: skip
@pytest.mark.parametrize("signed", [False, True])
def test_changed_chunks_are_refused_even_if_their_digest_is_signed(
    store: Store, package: Package, keyring: KeyRing, position: int, signed: bool
) -> None:
    path = package.path / "files" / "model.onnx.enc"
    changed = bytearray(path.read_bytes())
    changed[position] ^= 0x40
    path.write_bytes(changed)
    if signed:
        sign_digest_of(package, keyring, bytes(changed))
    with pytest.raises(IntegrityError, match=r"model\.onnx of digits version 1"):
        check(store, keyring)


def sign_digest_of(package: Package, keyring: KeyRing, encrypted: bytes) -> None:
    document = dict(package.manifest)
    document["files"]["model.onnx"]["sha256_encrypted"] = hashlib.sha256(encrypted).hexdigest()
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sign_again(package, keyring, canonical.encode())


def rearrange(order: list[int]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        body = data[HEADER_BYTES:]
        chunks = [body[i : i + STEP] for i in range(0, len(body), STEP)]
        return data[:HEADER_BYTES] + b"".join(chunks[index] for index in order)

    return change


@pytest.mark.parametrize(
    "order",
    [[1, 0, 2, 3], [0, 1, 3, 2], [3, 1, 2, 0], [0, 1, 2], [1, 2, 3], [0, 2, 3], [0, 1, 2, 3, 3],
     [0, 0, 2, 3], [0, 1, 2, 2], []],
)  # fmt: skip
@pytest.mark.parametrize("signed", [False, True])
def test_moved_chunks_are_refused_even_if_their_digest_is_signed(
    store: Store, package: Package, keyring: KeyRing, order: list[int], signed: bool
) -> None:
    path = package.path / "files" / "model.onnx.enc"
    changed = rearrange(order)(path.read_bytes())
    path.write_bytes(changed)
    if signed:
        sign_digest_of(package, keyring, changed)
    with pytest.raises(IntegrityError):
        check(store, keyring)


def test_truncation_at_every_chunk_edge_is_refused(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    path = package.path / "files" / "model.onnx.enc"
    good = path.read_bytes()
    edges = [0, HEADER_BYTES, *range(HEADER_BYTES + STEP, len(good), STEP)]
    for edge in edges:
        for length in (max(0, edge - 1), edge, edge + 1):
            path.write_bytes(good[:length])
            with pytest.raises(IntegrityError, match="cut short"):
                check(store, keyring)


def test_content_with_another_signed_digest_is_refused(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    document = dict(package.manifest)
    document["files"]["model.onnx"]["sha256"] = "0" * 64
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    sign_again(package, keyring, canonical.encode())
    with pytest.raises(IntegrityError, match="content was changed"):
        check(store, keyring)


@pytest.fixture
def second(store: Store, package: Package, keyring: KeyRing, fields: dict[str, Any]) -> Package:
    """Version 2, from another run, with files of the same names, sizes and chunks."""
    fields = {**fields, "lineage": {"run": "s" * 64}}
    files = {name: package.read(name)[::-1] for name in package.names}
    store.publish("digits", files, fields, keyring, chunk_bytes=CHUNK)
    return store.load("digits", 2, keyring, keyring.verify_key())


@pytest.fixture
def stranger(store: Store, package: Package, keyring: KeyRing, fields: dict[str, Any]) -> Package:
    """Version 1 of another model, with the same content as digits."""
    files = {name: package.read(name) for name in package.names}
    store.publish("letters", files, fields, keyring, chunk_bytes=CHUNK)
    return store.load("letters", 1, keyring, keyring.verify_key())


@pytest.mark.parametrize("other", ["second", "stranger"])
@pytest.mark.parametrize(
    "names",
    [
        ["manifest.json"],
        ["manifest.sig"],
        ["keys.json"],
        ["files"],
        ["manifest.json", "manifest.sig"],
        ["files", "keys.json"],
        ["manifest.json", "manifest.sig", "keys.json"],
        ["manifest.json", "manifest.sig", "files"],
        ["manifest.json", "manifest.sig", "keys.json", "files"],
    ],
    ids="+".join,
)
def test_parts_of_another_version_or_model_are_refused(
    request: pytest.FixtureRequest,
    store: Store,
    package: Package,
    keyring: KeyRing,
    *,
    other: str,
    names: list[str],
) -> None:
    source: Package = request.getfixturevalue(other)
    for name in names:
        target = package.path / name
        if target.is_dir():
            shutil.rmtree(target)
            shutil.copytree(source.path / name, target)
        else:
            shutil.copyfile(source.path / name, target)
    with pytest.raises(IntegrityError):
        check(store, keyring)


def test_files_and_keys_of_one_package_cannot_change_places(
    store: Store, keyring: KeyRing, fields: dict[str, Any]
) -> None:
    files = {"a.bin": b"same content", "b.bin": b"same content"}
    package = store.load(
        "twins", store.publish("twins", files, fields, keyring).version, keyring,
        keyring.verify_key(),
    )  # fmt: skip
    keys_path = package.path / "keys.json"
    good = keys_path.read_text()
    keys = json.loads(good)
    keys["files"]["a.bin"], keys["files"]["b.bin"] = keys["files"]["b.bin"], keys["files"]["a.bin"]
    keys_path.write_text(json.dumps(keys))
    with pytest.raises(IntegrityError, match="wrapped data key"):
        check(store, keyring, model="twins")
    keys_path.write_text(good)
    a, b = (package.path / "files" / f"{name}.enc" for name in ("a.bin", "b.bin"))
    content_a, content_b = a.read_bytes(), b.read_bytes()
    a.write_bytes(content_b)
    b.write_bytes(content_a)
    with pytest.raises(IntegrityError, match="isn't what was signed"):
        check(store, keyring, model="twins")


def test_fresh_wrapping_of_another_key_is_refused(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    keys_path = package.path / "keys.json"
    keys = json.loads(keys_path.read_text())
    planted = keyring.wrap(bytes(32), file_context("digits", 1, "model.onnx"))
    keys["files"]["model.onnx"] = planted.to_json()
    keys_path.write_text(json.dumps(keys))
    with pytest.raises(IntegrityError, match="chunk 1"):
        check(store, keyring)


@pytest.mark.parametrize("change", ["missing", "extra", "model", "version"])
def test_wrong_list_of_keys_is_refused(
    store: Store, package: Package, keyring: KeyRing, change: str
) -> None:
    keys_path = package.path / "keys.json"
    keys = json.loads(keys_path.read_text())
    if change == "missing":
        del keys["files"]["card.md"]
    elif change == "extra":
        keys["files"]["more"] = keys["files"]["card.md"]
    else:
        keys[change] = {"model": "letters", "version": 2}[change]
    keys_path.write_text(json.dumps(keys))
    with pytest.raises(IntegrityError, match=r"keys\.json"):
        check(store, keyring)


def test_another_signer_is_refused(
    store: Store, package: Package, keyring: KeyRing, other_keyring: KeyRing
) -> None:
    with pytest.raises(IntegrityError, match="not by the trusted"):
        store.load("digits", 1, keyring, other_keyring.verify_key())
    sign_again(package, other_keyring, (package.path / "manifest.json").read_bytes())
    with pytest.raises(IntegrityError, match="not by the trusted"):
        check(store, keyring)
    signature = json.loads((package.path / "manifest.sig").read_text())
    signature["key_id"] = keyring.signing_key_id
    (package.path / "manifest.sig").write_text(json.dumps(signature))
    with pytest.raises(IntegrityError, match="doesn't match its content"):
        check(store, keyring)


@pytest.mark.parametrize(
    "signature",
    [b"", b"null", b"[]", b"{}", b'{"format": 1}', b"\xff", b"[" * 50_000,
     b'{"format":"falaj.signature/1","algorithm":"none","key_id":"","signature":""}',
     b'{"format":"falaj.signature/1","algorithm":"Ed25519","key_id":1,"signature":""}'],
)  # fmt: skip
def test_malformed_signature_is_refused(
    store: Store, package: Package, keyring: KeyRing, signature: bytes
) -> None:
    (package.path / "manifest.sig").write_bytes(signature)
    with pytest.raises(IntegrityError, match="signature"):
        check(store, keyring)


def test_signature_for_another_type_of_document_is_refused(
    store: Store, package: Package, keyring: KeyRing
) -> None:
    payload = (package.path / "manifest.json").read_bytes()
    signature = sign(payload, "application/json", keyring.signing_key())
    (package.path / "manifest.sig").write_bytes(signature)
    with pytest.raises(IntegrityError, match="doesn't match"):
        check(store, keyring)


def test_another_key_ring_is_refused(
    store: Store, package: Package, keyring: KeyRing, other_keyring: KeyRing
) -> None:
    with pytest.raises(IntegrityError, match="isn't its key ring"):
        store.verify("digits", 1, other_keyring, keyring.verify_key())


def test_retired_key_is_refused(store: Store, package: Package, keyring: KeyRing) -> None:
    keyring.rotate()
    keyring.retire("1")
    with pytest.raises(WorkloadError, match="it was retired"):
        check(store, keyring)
