"""Building images: what a builder is given, what comes out, and what is refused before.

A stand-in on the PATH takes the builder's place: it keeps what it was given, and answers with an
OCI layout. The real one is for whoever has it: `falaj images build`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from falaj.stacks.command.images import push_image
from falaj.stacks.errors import StackError
from falaj.stacks.images import build
from falaj.stacks.images.build import (
    Built,
    Compression,
    Recipe,
    build_image,
    find_tool,
    sbom,
    source_date_epoch,
)
from falaj.stacks.images.crane import Crane
from falaj.stacks.images.items import Item
from falaj.stacks.images.wheels import Wheel, pinned
from tests.stacks.images.registries import Registry
from tests.stacks.images.scripts import script

BASE = "registry.example.ae/base@sha256:" + "b" * 64
IMAGE = Item("images", "falaj-inference", "", "0.1.0", "falaj/inference", None, "MIT", ())
BUILDAH = """#!{python}
import json, pathlib, shutil, sys
kept = pathlib.Path({kept!r})
words = sys.argv[1:]
with (kept / "commands").open("a") as file:
    file.write(json.dumps(words) + "\\n")
if words[0] == "bud":
    shutil.copytree(words[-1], kept / "context")
else:
    layout = pathlib.Path(words[-1].removeprefix("oci:"))
    layout.mkdir()
    manifests = [{{"digest": "sha256:" + "c" * 64}}]
    (layout / "index.json").write_text(json.dumps({{"manifests": manifests}}))
"""


@pytest.fixture
def wheelhouse(tmp_path: Path) -> tuple[Path, Path]:
    return wheel_and_pin(tmp_path)


def wheel_and_pin(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a tiny wheel, and the requirement file that pins it."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    wheel = folder / "demo-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo.py", "VALUE = 1\n")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\n"
                         "Version: 1.0\n")  # fmt: skip
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(
        f"# comment\ndemo==1.0 \\\n    --hash=sha256:{digest}\n    # via nobody\n"
        f"other==2 ; sys_platform == 'win32' \\\n    --hash=sha256:{digest}\n"
    )
    return folder, requirements


@pytest.fixture
def builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts the stand-in on the PATH; the folder of what it was given."""
    kept = tmp_path / "kept"
    kept.mkdir()
    tool = tmp_path / "bin" / "buildah"
    tool.parent.mkdir()
    tool.write_text(BUILDAH.format(python=sys.executable, kept=str(kept)))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tool.parent))
    monkeypatch.delenv("BUILDAH_ISOLATION", raising=False)
    return kept


def run(
    tmp_path: Path, wheelhouse: tuple[Path, Path], packages: tuple[str, ...],
    compression: Compression = "gzip",
) -> str:  # fmt: skip
    wheels, requirements = wheelhouse
    recipe = Recipe("falaj-inference", "inference.Containerfile", str(requirements), packages, "r")
    built = build_image(
        recipe, IMAGE, {"base-build": BASE, "r": BASE}, tmp_path / "out", tool="buildah",
        machine="amd64", epoch=1_700_000_000, wheels=wheels, say=lambda line: None,
        compression=compression,
    )  # fmt: skip
    return built.digest


@pytest.mark.slow
def test_a_builder_gets_all_with_one_time_and_no_network(
    tmp_path: Path, wheelhouse: tuple[Path, Path], builder: Path
) -> None:
    assert run(tmp_path, wheelhouse, ("__init__.py", "registry")) == "sha256:" + "c" * 64
    context = builder / "context"
    files = {str(path.relative_to(context)) for path in context.rglob("*") if path.is_file()}
    assert {"Containerfile", "finish.py", "requirements.txt", "sbom.cdx.json"} <= files
    assert "wheels/demo-1.0-py3-none-any.whl" in files
    assert "falaj/workloads/registry/__main__.py" in files
    assert not [each for each in files if "__pycache__" in each or "inference" in each]
    assert "other" not in (context / "requirements.txt").read_text()
    first, second = map(json.loads, (builder / "commands").read_text().splitlines())
    assert "--network=none" in first
    assert "--layers=true" in first, "else wheels and code are one layer"
    assert f"RUN_BASE={BASE}" in first
    assert first[first.index("--timestamp") + 1] == "1700000000"
    assert f"org.opencontainers.image.base.digest={BASE.partition('@')[2]}" in first
    assert second[0] == "push"
    assert "--compression-format" not in second


def test_layers_are_compressed_as_asked_for(
    tmp_path: Path,
    wheelhouse: tuple[Path, Path],
    builder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(build, "fetch", lambda requirements, target, *rest: target.mkdir())
    run(tmp_path, wheelhouse, ("__init__.py",), "zstd")
    _, pushed = map(json.loads, (builder / "commands").read_text().splitlines())
    assert pushed[pushed.index("--compression-format") + 1] == "zstd"


@pytest.mark.slow
def test_a_wheel_with_another_content_is_not_built_in(
    tmp_path: Path, wheelhouse: tuple[Path, Path], builder: Path
) -> None:
    with next(wheelhouse[0].iterdir()).open("ab") as wheel:
        wheel.write(b"more")
    with pytest.raises(StackError, match="DO NOT MATCH THE HASHES"):
        run(tmp_path, wheelhouse, ("__init__.py",))
    assert not (builder / "commands").exists()


def test_without_a_builder_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match="none of buildah, podman and docker"):
        find_tool(None)
    with pytest.raises(StackError, match="podman is not on the PATH"):
        find_tool("podman")


def test_the_time_of_builds_is_given_or_that_of_the_last_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert source_date_epoch() == 1_700_000_000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(StackError, match="seconds since 1970"):
        source_date_epoch()
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    assert source_date_epoch() > 315_532_799


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("demo", "allowed: name==version with --hash"),
        ("demo>=1 --hash=sha256:" + "1" * 64, "allowed: name==version"),
        ("demo==1", "allowed: name==version with --hash"),
        ("demo==1 --hash=sha256:12", "allowed: name==version with --hash"),
        ("demo==1 --hash=sha1:" + "1" * 40, "allowed: name==version with --hash"),
        ("-r other.txt", "allowed: name==version"),
        ("demo @ file:///demo.whl", "allowed: name==version"),
        ("demo==1 ; nonsense == 3 --hash=sha256:" + "1" * 64, "demo: "),
    ],
)
def test_requirements_that_are_not_pinned_are_refused(
    tmp_path: Path, line: str, said: str
) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(line + "\n")
    with pytest.raises(StackError, match=said):
        pinned(path, "amd64")


def test_a_list_of_contents_names_the_base_and_every_wheel_and_is_the_same_each_time() -> None:
    wheels = [Wheel("demo", "1.0", ("1" * 64,)), Wheel("Other_One", "2", ("2" * 64, "3" * 64))]
    text = sbom(IMAGE, BASE, wheels, epoch=1_700_000_000)
    assert text == sbom(IMAGE, BASE, list(wheels), epoch=1_700_000_000)
    assert text != sbom(IMAGE, BASE, wheels[:1], epoch=1_700_000_000)
    content = json.loads(text)
    assert (content["bomFormat"], content["specVersion"]) == ("CycloneDX", "1.6")
    parts = {each["name"]: each for each in content["components"]}
    assert parts["registry.example.ae/base"]["hashes"][0]["content"] == "b" * 64
    assert parts["Other_One"]["purl"] == "pkg:pypi/other-one@2"
    assert [each["value"] for each in parts["Other_One"]["properties"]] == ["2" * 64, "3" * 64]
    assert len(content["dependencies"]) == 4


@pytest.mark.parametrize("make", [lambda: ec.generate_private_key(ec.SECP256R1()),
                                  ed25519.Ed25519PrivateKey.generate])  # fmt: skip
def test_signatures_hold_for_the_image_and_for_no_other(tmp_path: Path, make: object) -> None:
    private = make()  # type: ignore[operator]
    key, public = tmp_path / "key.pem", tmp_path / "public.pem"
    pem = serialization.Encoding.PEM
    key.write_bytes(private.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))  # fmt: skip
    public.write_bytes(private.public_key().public_bytes(
        pem, serialization.PublicFormat.SubjectPublicKeyInfo))  # fmt: skip
    text = build.payload("registry.example.ae/falaj/inference", "sha256:" + "a" * 64)
    signature = build.sign(text, key)
    assert build.is_signed(text, signature, public)
    assert not build.is_signed(text.replace(b"aaaa", b"aaab"), signature, public)
    assert not build.is_signed(text, base64.b64encode(b"x" * 64).decode(), public)
    assert not build.is_signed(text, "no base64", public)


def test_what_was_built_is_pushed_unchanged_and_signed(
    upstream: Registry, target: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = upstream.image("built", "built")
    Crane().pull(f"{upstream.address}/built@{digest}", tmp_path / "layout")
    built = Built("falaj-inference", tmp_path / "layout", digest, tmp_path / "sbom.cdx.json")
    key = tmp_path / "key.pem"
    private = ed25519.Ed25519PrivateKey.generate()
    key.write_bytes(private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))  # fmt: skip
    monkeypatch.setattr("falaj.stacks.command.images.shutil.which", lambda name: None)
    push_image(built, IMAGE, target.address, str(key))
    assert target.digest(f"{target.address}/falaj/inference:0.1.0") == digest
    kept = json.loads((tmp_path / "signature.json").read_text())
    about = json.loads(kept["payload"])["critical"]
    assert about["image"]["docker-manifest-digest"] == digest
    private.public_key().verify(base64.b64decode(kept["signature"]), kept["payload"].encode())


def test_keys_that_can_not_sign_are_refused(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    with pytest.raises(StackError, match="cannot be read"):
        build.sign(b"", key)
    key.write_text("nonsense")
    with pytest.raises(StackError, match="a private key in PEM"):
        build.sign(b"", key)
    key.write_bytes(rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption()))  # fmt: skip
    with pytest.raises(StackError, match="allowed: ECDSA or Ed25519"):
        build.sign(b"", key)


@pytest.fixture
def finish() -> ModuleType:
    return script("finish")


@pytest.mark.parametrize(("part", "status"), [("lib", 0), ("app", 1)])
def test_wheels_may_be_of_a_later_language_but_not_our_own_code(
    finish: ModuleType, tmp_path: Path, part: str, status: int
) -> None:
    for each in ("lib", "app"):
        (tmp_path / each).mkdir()
        (tmp_path / each / "good.py").write_text("VALUE = 1\n")
    (tmp_path / part / "later.py").write_text("match = case = {\n")
    assert finish.wheels(tmp_path, "/usr/bin/python3") == 0
    assert [path.parent.parent.name for path in tmp_path.rglob("good.*.pyc")] == ["lib"]
    assert finish.code(tmp_path) == status
    assert len(list(tmp_path.rglob("good.*.pyc"))) == 2


def test_the_last_steps_compile_the_same_bytes_whatever_the_time(
    finish: ModuleType, tmp_path: Path
) -> None:
    trees = []
    for number in range(2):
        tree = tmp_path / str(number)
        (tree / "lib" / "bin").mkdir(parents=True)
        source = tree / "lib" / "demo.py"
        source.write_text("VALUE = {'a': 1}\n")
        source.touch()
        (tree / "lib" / "bin" / "script").write_text("#!/build/python\n")
        assert finish.wheels(tree, "/usr/bin/python3") == 0
        assert not (tree / "lib" / "bin").exists()
        assert (tree / "bin" / "python3").readlink() == Path("/usr/bin/python3")
        trees.append({
            str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*.pyc")
        })  # fmt: skip
    assert trees[0] == trees[1]
    assert len(trees[0]) == 1


def test_wheels_of_the_image_before_are_put_where_none_are_installed(
    finish: ModuleType, tmp_path: Path
) -> None:
    assert finish.wheels(tmp_path, "/usr/bin/python3") == 0
    assert list((tmp_path / "lib").iterdir()) == []
