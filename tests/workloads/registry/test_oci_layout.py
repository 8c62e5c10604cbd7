"""Packages as images: the same bytes each time, and nothing but a package comes back."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry import oci_layout
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.oci_layout import (
    KEYS_TYPE,
    MAX_DOCUMENT_BYTES,
    PACKAGE_TYPE,
    parse_image_manifest,
    read_package,
    read_sealed_manifest,
    write_keys_image,
    write_package_image,
)
from falaj.workloads.registry.package import (
    Manifest,
    Package,
    rewrap_package_keys,
    write_package,
)
from falaj.workloads.registry.store import Store
from tests.workloads.registry.conftest import CHUNK, FILES
from tests.workloads.registry.images import (
    Sent,
    archive,
    blob,
    compact,
    forge,
    forge_layers,
    index_of,
    manifest_of,
    mounted,
    put,
    replace_manifest,
    send,
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where one package is published and written once, for all that only read copies of it."""
    return tmp_path_factory.mktemp("site")


@pytest.fixture(scope="module")
def keyring(site: Path) -> KeyRing:
    return KeyRing.create(site / "keyring")


@pytest.fixture(scope="module")
def original(site: Path, keyring: KeyRing) -> Package:
    store = Store(site / "registry")
    fields = {"dataset": {"digest": "d" * 64}, "lineage": {}, "inputs": [], "outputs": []}
    store.publish("digits", FILES, fields, keyring, chunk_bytes=CHUNK)
    return store.load("digits", 1, keyring, keyring.verify_key())


@pytest.fixture(scope="module")
def written(site: Path, original: Package) -> Sent:
    return send(original, site / "sent")


@pytest.fixture
def sent(written: Sent, tmp_path: Path) -> Sent:
    """A copy of its images, to be tampered with."""
    shutil.copytree(written.image.parent, tmp_path / "sent")
    return Sent(tmp_path / "sent" / "image", tmp_path / "sent" / "keys", written.package)


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


# -- good ones -----------------------------------------------------------------------------------


def test_what_was_written_comes_back_byte_for_byte(
    sent: Sent, original: Package, keyring: KeyRing, target: Path
) -> None:
    found = sent.read(target, keyring, sent.package.itself.digest)
    assert found.digest == original.digest == sent.package.package_digest
    assert found.read("model.onnx") == bytes(range(256))
    assert content_of(target) == content_of(original.path)
    assert {path.stat().st_mode & 0o077 for path in [target, *target.rglob("*")]} == {0}


def test_without_a_key_ring_it_is_verified_and_stays_sealed(
    sent: Sent, keyring: KeyRing, target: Path
) -> None:
    found = read_package(sent.image, sent.keys, target, keys=None, verify_key=keyring.verify_key())
    with pytest.raises(WorkloadError, match="without a key ring"):
        found.read("model.onnx")
    (target / "files" / "card.md.enc").write_bytes(b"x")
    with pytest.raises(IntegrityError, match="encrypted bytes"):
        found.verify_sealed()


def test_it_is_an_image_that_clusters_mount(sent: Sent) -> None:
    document = manifest_of(sent.image)
    assert document["artifactType"] == PACKAGE_TYPE
    assert document["config"]["mediaType"] == "application/vnd.oci.image.config.v1+json"
    assert {each["mediaType"] for each in document["layers"]} == {
        "application/vnd.oci.image.layer.v1.tar"
    }
    config = json.loads(blob(sent.image, document["config"]["digest"]).read_bytes())
    digests = [each["digest"] for each in document["layers"]]
    assert config["rootfs"] == {"type": "layers", "diff_ids": digests}
    for digest in digests:
        with tarfile.open(blob(sent.image, digest)) as opened:
            assert "keys.json" not in opened.getnames()
    keys = manifest_of(sent.keys)
    assert keys["artifactType"] == KEYS_TYPE
    assert keys["subject"] == {
        "mediaType": document["mediaType"],
        "digest": index_of(sent.image)["manifests"][0]["digest"],
        "size": index_of(sent.image)["manifests"][0]["size"],
    }


def test_members_say_nothing_of_whoever_wrote_them(sent: Sent) -> None:
    for layer in manifest_of(sent.image)["layers"]:
        with tarfile.open(blob(sent.image, layer["digest"])) as opened:
            for member in opened:
                assert (member.uid, member.gid, member.mtime) == (0, 0, 0)
                assert (member.uname, member.gname) == ("", "")
                assert member.mode == (0o555 if member.isdir() else 0o444)
                assert not member.pax_headers


def test_what_a_mount_shows_is_a_package(sent: Sent, original: Package, tmp_path: Path) -> None:
    assert content_of(mounted([sent.image, sent.keys], tmp_path / "mount")) == content_of(
        original.path
    )


def test_a_rotation_changes_the_keys_alone(
    package: Package, keyring: KeyRing, tmp_path: Path, target: Path
) -> None:
    before = send(package, tmp_path / "before")
    old = index_of(before.keys)["manifests"][0]["digest"]
    keyring.rotate()

    assert rewrap_package_keys(package.path / "keys.json", keyring)
    after = send(package, tmp_path / "after")
    assert after.package == before.package
    assert index_of(after.keys)["manifests"][0]["digest"] != old
    assert Sent(before.image, after.keys, before.package).read(target, keyring).version == 1


@given(
    files=st.dictionaries(
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", fullmatch=True),
        st.binary(max_size=2000),
        min_size=1,
        max_size=3,
    )
)
def test_a_package_is_one_image_wherever_it_is_written(
    keyring: KeyRing, files: dict[str, bytes]
) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder)
        (root / "package").mkdir()
        fields = {"dataset": {}, "lineage": {"run": "r"}, "inputs": [], "outputs": []}
        created = "2026-01-01T00:00:00+00:00"
        draft = Manifest("m", 1, created, keyring.signing_key_id, {}, fields)
        write_package(
            root / "package", files, draft, keys=keyring, signing_key=keyring.signing_key(),
            chunk_bytes=512,
        )  # fmt: skip
        first = write_package_image(root / "package", root / "first")
        keys = write_keys_image(root / "package", first, root / "first-keys")
        sent = Sent(root / "first", root / "first-keys", first)
        # Laid out elsewhere, at another time.
        again = sent.read(root / "back", keyring)
        for path in again.path.rglob("*"):
            os.utime(path, (1, 1))
        assert write_package_image(again.path, root / "second") == first
        assert write_keys_image(again.path, first, root / "second-keys") == keys
        assert content_of(root / "second") == content_of(root / "first")
        assert {name: again.read(name) for name in files} == files


# -- attacks on the package's image --------------------------------------------------------------


def flip(data: bytes) -> bytes:
    return data[:-1100] + bytes([data[-1100] ^ 1]) + data[-1099:]


def refuse(sent: Sent, target: Path, keyring: KeyRing, words: str) -> None:
    with pytest.raises(IntegrityError, match=words):
        sent.read(target, keyring)


def refit_subject(sent: Sent) -> None:
    """Let the keys name the image as it is now."""
    described = index_of(sent.image)["manifests"][0]
    kept = {key: described[key] for key in ("mediaType", "digest", "size")}
    forge(sent.keys, lambda d: d.update(subject=kept))


def members_of(data: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as opened:
        found = []
        for member in opened:
            file = opened.extractfile(member)
            name = f"{member.name}/" if member.isdir() else member.name
            found.append((name, file.read() if file else b""))
        return found


def test_the_helper_makes_layers_that_are_taken(
    sent: Sent, keyring: KeyRing, target: Path
) -> None:
    """Else the attacks below would be refused for the helper's own faults."""
    forge_layers(sent.image, lambda old: [archive(*members_of(each)) for each in old])
    assert sent.read(target, keyring, sent.package.itself.digest).version == 1


@pytest.mark.parametrize("what", ["layer", "config", "manifest", "keys"])
def test_a_changed_blob_is_refused(sent: Sent, keyring: KeyRing, target: Path, what: str) -> None:
    layout = sent.keys if what == "keys" else sent.image
    document = manifest_of(layout)
    digest = {
        "layer": document["layers"][-1]["digest"],
        "keys": document["layers"][-1]["digest"],
        "config": document["config"]["digest"],
        "manifest": index_of(layout)["manifests"][0]["digest"],
    }[what]
    path = blob(layout, digest)
    data = bytearray(path.read_bytes())
    data[-1100 if what in ("layer", "keys") else 5] ^= 1
    path.write_bytes(data)
    refuse(sent, target, keyring, "changed|isn't")


@pytest.mark.parametrize(
    ("forged", "words"),
    [
        (lambda d: d.update(artifactType="application/vnd.cncf.model.manifest.v1+json"),
         "is no package"),
        (lambda d: d.pop("artifactType"), "is no package"),
        (lambda d: d.update(artifactType=KEYS_TYPE), "malformed"),
        (lambda d: d["config"].update(mediaType="application/vnd.oci.empty.v1+json"),
         "malformed"),
        (lambda d: d["layers"][0].update(mediaType="application/vnd.oci.image.layer.v1.tar+gzip"),
         "malformed"),
        (lambda d: d["layers"][0].update(urls=["https://example.com/layer"]), "malformed"),
        (lambda d: d["layers"][0].update(size=-1), "malformed"),
        (lambda d: d["layers"][0].update(size=True), "malformed"),
        (lambda d: d["layers"][0].update(digest="sha256:../../../etc/passwd"), "malformed"),
        (lambda d: d["layers"][1].update(size=d["layers"][1]["size"] + 512), "bytes; its image"),
        (lambda d: d.update(layers=[]), "layers; allowed"),
        (lambda d: d.update(layers=d["layers"] * 60), "layers; allowed"),
        (lambda d: d["layers"].reverse(), "isn't of its layers"),
        (lambda d: d["layers"].pop(), "isn't of its layers"),
        (lambda d: d.update(schemaVersion=1), "form that packages are written in"),
        (lambda d: d["annotations"].update(note="planted"), "form that packages are written in"),
        (lambda d: d["annotations"].pop("org.opencontainers.image.created"), "malformed"),
        (lambda d: d["annotations"].update({"org.opencontainers.image.created": "yesterday"}),
         "malformed"),
        (lambda d: d["annotations"].update({"org.opencontainers.image.version": "0"}),
         "malformed"),
        (lambda d: d["annotations"].update({"org.opencontainers.image.title": "../x"}),
         "malformed"),
    ],
)  # fmt: skip
def test_a_forged_manifest_is_refused(
    sent: Sent, keyring: KeyRing, target: Path,
    forged: Callable[[dict[str, Any]], Any], words: str,
) -> None:  # fmt: skip
    forge(sent.image, forged)
    refit_subject(sent)
    refuse(sent, target, keyring, words)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("org.opencontainers.image.version", "2"),
        ("org.opencontainers.image.title", "letters"),
        ("org.opencontainers.image.created", "2020-01-01T00:00:00+00:00"),
        ("io.falaj.package.digest", "0" * 64),
    ],
)
def test_an_image_that_says_something_else_than_its_package_is_refused(
    sent: Sent, keyring: KeyRing, target: Path, key: str, value: str
) -> None:
    """With keys that go along with it: the signed manifest decides."""
    forge(sent.image, lambda d: d["annotations"].update({key: value}))
    refit_subject(sent)
    forge(sent.keys, lambda d: d["annotations"].update({key: value}))
    refuse(sent, target, keyring, "isn't in its package")


def test_a_wrong_diff_id_is_refused(sent: Sent, keyring: KeyRing, target: Path) -> None:
    def change(document: dict[str, Any]) -> None:
        config = json.loads(blob(sent.image, document["config"]["digest"]).read_bytes())
        config["rootfs"]["diff_ids"][-1] = f"sha256:{'0' * 64}"
        document["config"] |= put(sent.image, compact(config))

    forge(sent.image, change)
    refuse(sent, target, keyring, "isn't of its layers")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # What stands first, and in the place of a file.
        (lambda old: [archive(*members_of(old[0]), ("planted", b"x")), *old[1:]], "more in it"),
        (lambda old: [old[0], archive(("files/", b""), ("../card.md.enc", b"x")), *old[2:]],
         "stands where"),
        (lambda old: [old[0], archive(("files/", b""), ("/etc/cron.d/x", b"x")), *old[2:]],
         "stands where"),
        (lambda old: [old[0], archive(("files/", b""), ("files/other.enc", b"x")), *old[2:]],
         "stands where"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", b""),
                                      type=tarfile.SYMTYPE, linkname="/etc/passwd"), *old[2:]],
         "link, device or folder"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", b""),
                                      type=tarfile.LNKTYPE, linkname="manifest.json"), *old[2:]],
         "link, device or folder"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", b""),
                                      type=tarfile.CHRTYPE, devmajor=1, devminor=3), *old[2:]],
         "link, device or folder"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", b""),
                                      type=tarfile.FIFOTYPE), *old[2:]],
         "link, device or folder"),
        (lambda old: [old[0], archive(*members_of(old[1]), members_of(old[1])[-1]), *old[2:]],
         "more in it"),
        (lambda old: [old[0], archive(*members_of(old[1]), mode=0o4755), *old[2:]],
         "isn't in the form"),
        (lambda old: [old[0], archive(*members_of(old[1]), mtime=1), *old[2:]],
         "isn't in the form"),
        (lambda old: [old[0], archive(*members_of(old[1]), uid=1000), *old[2:]],
         "isn't in the form"),
        (lambda old: [old[0], archive(members_of(old[1])[-1]), *old[2:]],
         "begin with the folder"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", bytes(10_000))),
                      *old[2:]], "bytes; allowed"),
        (lambda old: [old[0], archive(("files/", b""), ("files/card.md.enc", b"x")), *old[2:]],
         "bytes, .* were signed"),
        (lambda old: [old[0], old[1] + b"more", *old[2:]], "more in it"),
        (lambda old: [old[0], old[1][:-512], *old[2:]], "cut short"),
        (lambda old: [old[0], old[1][:600], *old[2:]], "cut short"),
        (lambda old: [old[0], b"", *old[2:]], "cut short"),
        (lambda old: [old[0], bytes(len(old[1])), *old[2:]], "begin with the folder"),
        (lambda old: [old[0], old[2], old[1]], "stands where"),
        (lambda old: [old[0], flip(old[1]), *old[2:]], "encrypted bytes were changed|hides"),
        (lambda old: old[:-1], "layers of files"),
        (lambda old: [*old, archive(("keys.json", b"{}"))], "layers of files"),
    ],
)  # fmt: skip
def test_forged_layers_are_refused(
    sent: Sent, keyring: KeyRing, target: Path,
    changed: Callable[[list[bytes]], list[bytes]], words: str,
) -> None:  # fmt: skip
    forge_layers(sent.image, changed)
    refit_subject(sent)
    refuse(sent, target, keyring, words)
    assert not (target.parent / "card.md.enc").exists()


def test_an_extended_header_is_refused(sent: Sent, keyring: KeyRing, target: Path) -> None:
    def change(old: list[bytes]) -> list[bytes]:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as made:
            for name, data in members_of(old[0]):
                member = tarfile.TarInfo(name)
                member.size, member.pax_headers = len(data), {"path": "../../planted"}
                made.addfile(member, io.BytesIO(data))
        return [buffer.getvalue(), *old[1:]]

    forge_layers(sent.image, change)
    refit_subject(sent)
    refuse(sent, target, keyring, "where the file manifest.json should be|stands where")


@pytest.mark.parametrize("size", [MAX_DOCUMENT_BYTES + 1, MAX_DOCUMENT_BYTES * 3])
def test_an_oversized_manifest_is_not_parsed(
    sent: Sent, keyring: KeyRing, target: Path, size: int
) -> None:
    replace_manifest(sent.image, b" " * size)
    refuse(sent, target, keyring, str(MAX_DOCUMENT_BYTES))
    with pytest.raises(IntegrityError, match="allowed"):
        parse_image_manifest(b" " * size, "x")


@given(st.binary(max_size=500) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["artifactType", "config", "layers", "annotations",
                                       "subject", "digest", "size", "mediaType"]), inner),
    max_leaves=20,
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_bytes_for_a_manifest_are_refused_in_words(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        parse_image_manifest(data, "what was given")


def test_a_deep_manifest_is_refused_in_words(sent: Sent) -> None:
    with pytest.raises(IntegrityError, match="JSON"):
        parse_image_manifest(b"[" * 100_000, "what was given")


# -- swapped, mixed, missing ---------------------------------------------------------------------


def test_another_version_in_its_place_is_refused(
    store: Store, keyring: KeyRing, fields: dict[str, Any], sent: Sent, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    for content in (b"one", b"two"):
        store.publish("digits", {"model.onnx": content}, fields, keyring)
    other = send(store.load("digits", 2, keyring, keyring.verify_key()), tmp_path / "other")
    with pytest.raises(IntegrityError, match="it is another image"):
        other.read(target, keyring, sent.package.itself.digest)
    with pytest.raises(IntegrityError, match="another package's"):
        Sent(sent.image, other.keys, sent.package).read(target, keyring)
    # The package's own files with the manifest of another, and everything made to fit.
    forge_layers(
        sent.image,
        lambda old: [blob(other.image, manifest_of(other.image)["layers"][0]["digest"])
                     .read_bytes(), *old[1:]],
    )  # fmt: skip
    refit_subject(sent)
    refuse(sent, target, keyring, "layers of files")


def test_another_signer_is_refused(sent: Sent, other_keyring: KeyRing, target: Path) -> None:
    refuse(sent, target, other_keyring, "not by the trusted")


@pytest.mark.parametrize("which", ["image", "keys"])
@pytest.mark.parametrize("what", ["index.json", "oci-layout", "layer", "config"])
def test_what_is_missing_is_said(
    sent: Sent, keyring: KeyRing, target: Path, which: str, what: str
) -> None:
    layout: Path = getattr(sent, which)
    document = manifest_of(layout)
    found = {
        "layer": blob(layout, document["layers"][0]["digest"]),
        "config": blob(layout, document["config"]["digest"]),
    }.get(what, layout / what)
    found.unlink()
    refuse(sent, target, keyring, f"can't read {found}")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_not_read(
    sent: Sent, keyring: KeyRing, target: Path, kind: str
) -> None:
    path = blob(sent.image, manifest_of(sent.image)["layers"][1]["digest"])
    moved = path.rename(path.with_name("elsewhere"))
    if kind == "link":
        path.symlink_to(moved)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    refuse(sent, target, keyring, "can't read|ordinary file")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda index: index["manifests"].append(index["manifests"][0]), "exactly one image"),
        (lambda index: index["manifests"].clear(), "exactly one image"),
        (lambda index: index["manifests"][0].update(digest="sha256:../x"), "exactly one image"),
        (lambda index: index.pop("manifests"), "exactly one image"),
    ],
)
def test_an_index_names_one_image(
    sent: Sent, keyring: KeyRing, target: Path, change: Callable[[Any], Any], words: str
) -> None:
    index = index_of(sent.image)
    change(index)
    (sent.image / "index.json").write_text(json.dumps(index))
    refuse(sent, target, keyring, words)


def test_keys_that_are_no_keys_are_refused(sent: Sent, keyring: KeyRing, target: Path) -> None:
    forge_layers(sent.keys, lambda _: [archive(("keys.json", b"{}"))])
    refuse(sent, target, keyring, "isn't a list of wrapped keys")


def test_a_package_in_the_place_of_its_keys_is_refused(
    sent: Sent, keyring: KeyRing, target: Path
) -> None:
    refuse(Sent(sent.image, sent.image, sent.package), target, keyring, "needed")
    refuse(Sent(sent.keys, sent.keys, sent.package), target, keyring, "needed")


# -- writing -------------------------------------------------------------------------------------


def test_what_no_image_can_hold_is_refused_before_it_is_written(
    store: Store, keyring: KeyRing, fields: dict[str, Any], tmp_path: Path
) -> None:
    many = {f"f{number}": b"" for number in range(oci_layout.MAX_FILES + 1)}
    store.publish("many", many, fields, keyring)
    store.publish("long", {"n" * (oci_layout.MAX_NAME + 1): b""}, fields, keyring)
    for model, words in (("many", "an image may have 126"), ("long", "under a shorter one")):
        with pytest.raises(WorkloadError, match=words):
            write_package_image(store.path(model, 1), tmp_path / model)
        assert not (tmp_path / model).exists()


def test_a_folder_without_a_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match=r"manifest\.json"):
        write_package_image(tmp_path, tmp_path / "image")


def test_the_first_layer_alone_tells_what_a_package_is(sent: Sent, original: Package) -> None:
    digest = manifest_of(sent.image)["layers"][0]["digest"]
    layer = blob(sent.image, digest).read_bytes()
    payload, signature = read_sealed_manifest(layer, sent.package)
    assert payload == (original.path / "manifest.json").read_bytes()
    assert signature == (original.path / "manifest.sig").read_bytes()
    for changed in (layer[:-1], layer + b"x", flip(layer), b""):
        with pytest.raises(IntegrityError):
            read_sealed_manifest(changed, sent.package)
    assert hashlib.sha256(layer).hexdigest() == digest.removeprefix("sha256:")
