"""Evidence in files: written, signed, and verified, also by the real openssl."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa, x25519
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from falaj.stacks.checking.evidence import (
    PASSPHRASE,
    PASSPHRASE_FILE,
    Signer,
    signer_of,
    verify_evidence,
    write_evidence,
)
from falaj.stacks.errors import StackError
from tests.policies.reports.results import clean, small
from tests.stacks.conftest import ROOT

SECRET = "open sesame\u00e9"


def made(
    folder: Path, name: str = "key", *, kind: Any = ed25519.Ed25519PrivateKey, passphrase: str = ""
) -> tuple[Path, Path]:
    """A private and a public key in files."""
    private, public = folder / f"{name}.pem", folder / f"{name}.pub.pem"
    key = kind.generate()
    lock = BestAvailableEncryption(passphrase.encode()) if passphrase else NoEncryption()
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    private.chmod(0o600)
    return private, public


def openssl(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    if not shutil.which("openssl"):
        pytest.skip("the command openssl isn't on this machine: Debian's package openssl has it")
    return subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A signed page and the public key."""
    private, public = made(tmp_path)
    page = tmp_path / "evidence.html"
    write_evidence(small(), page, signer=signer_of(private, {}))
    return page, public


def verified_by_openssl(page: Path, public: Path) -> bool:
    """As the page itself says how to."""
    command = re.search(r"openssl (pkeyutl .*?)</code>", page.read_text("utf-8"))
    names = {
        "PUB.pem": str(public),
        "evidence.html": str(page),
        "evidence.html.sig": f"{page}.sig",
    }
    assert command
    done = openssl(*(names.get(each, each) for each in command[1].split()))
    assert ("Verified Successfully" in done.stdout) == (done.returncode == 0)
    return done.returncode == 0


def test_openssl_verifies_what_falaj_signs(signed: tuple[Path, Path]) -> None:
    page, public = signed
    assert Path(f"{page}.sig").stat().st_size == 64
    assert verified_by_openssl(page, public)
    page.write_bytes(page.read_bytes() + b" ")
    assert not verified_by_openssl(page, public)


def test_falaj_takes_what_openssl_makes(tmp_path: Path) -> None:
    """Keys as the error messages say to make them, and a signature."""
    private, public = tmp_path / "KEY.pem", tmp_path / "PUB.pem"
    opens = f"pass:{SECRET}"
    for arguments in (
        ["genpkey", "-algorithm", "ed25519", "-aes256", "-out", private, "-pass", opens],
        ["pkey", "-in", private, "-pubout", "-out", public, "-passin", opens],
    ):
        done = openssl(*arguments)
        assert done.returncode == 0, done.stderr
    page = tmp_path / "evidence.html"
    write_evidence(small(), page, signer=signer_of(private, {PASSPHRASE: SECRET}))
    assert verified_by_openssl(page, public)
    beside = Path(f"{page}.sig")
    beside.unlink()
    sign = ["pkeyutl", "-sign", "-inkey", private, "-passin", opens, "-rawin"]
    done = openssl(*sign, "-in", page, "-out", beside)
    assert done.returncode == 0, done.stderr
    assert verify_evidence(str(page), str(public)) == 0


def test_the_fingerprint_is_what_openssl_prints(signed: tuple[Path, Path]) -> None:
    page, public = signed
    der = public.with_suffix(".der")
    openssl("pkey", "-pubin", "-in", public, "-outform", "DER", "-out", der)
    digest = openssl("dgst", "-sha256", "-r", der).stdout.split()[0]
    assert f'content="sha256:{digest}"' in page.read_text("utf-8")


def test_good_changed_and_wrong_key_are_told_apart(
    signed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, public = signed
    _, other = made(tmp_path, "other")
    capsys.readouterr()
    assert verify_evidence(str(page), str(public)) == 0
    assert capsys.readouterr().out.startswith("good: ")
    assert verify_evidence(str(page), str(other)) == 1
    assert capsys.readouterr().out.startswith("wrong key: ")
    text = page.read_text("utf-8")
    page.write_text(text.replace("violated", "approved", 1), "utf-8")
    assert verify_evidence(str(page), str(public)) == 1
    assert capsys.readouterr().out.startswith("changed: ")
    # A page that names another key isn't taken for one of that key.
    page.write_text(re.sub(r"sha256:[0-9a-f]{64}", f"sha256:{'0' * 64}", text), "utf-8")
    assert verify_evidence(str(page), str(public)) == 1
    assert capsys.readouterr().out.startswith("wrong key: ")
    page.write_text(re.sub(r"<meta name=.falaj-signed-by[^>]*>", "", text), "utf-8")
    assert verify_evidence(str(page), str(public)) == 1
    assert capsys.readouterr().out.startswith("not verified: ")


def test_a_signature_that_was_changed(signed: tuple[Path, Path]) -> None:
    page, public = signed
    beside = Path(f"{page}.sig")
    content = bytearray(beside.read_bytes())
    for index in (0, 31, 32, 63):
        content[index] ^= 1
        beside.write_bytes(content)
        assert verify_evidence(str(page), str(public)) == 1
        content[index] ^= 1
    for odd in (b"", bytes(content[:63]), bytes(content) + b"\n"):
        beside.write_bytes(odd)
        with pytest.raises(StackError, match="no Ed25519 signature: given"):
            verify_evidence(str(page), str(public))


def test_an_unsigned_page_leaves_no_signature_of_another(
    signed: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page, public = signed
    write_evidence(clean(), page)
    assert not Path(f"{page}.sig").exists()
    assert "this one isn't signed" in capsys.readouterr().out
    with pytest.raises(StackError, match=r"evidence\.html\.sig can't be read"):
        verify_evidence(str(page), str(public))
    write_evidence(clean(), page)
    assert "isn't signed" not in capsys.readouterr().out


@pytest.mark.parametrize("how", ["variable", "file", "file with an end of line"])
def test_a_key_with_a_passphrase(tmp_path: Path, how: str) -> None:
    private, _ = made(tmp_path, passphrase=SECRET)
    held = tmp_path / "passphrase"
    held.write_text(SECRET + ("\r\n" if "line" in how else ""), "utf-8", newline="")
    held.chmod(0o600)
    given = {PASSPHRASE: SECRET} if how == "variable" else {PASSPHRASE_FILE: str(held)}
    assert isinstance(signer_of(private, given), Signer)
    # No program that is previewed inherits it.
    assert given == {}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"no passphrase is given\n  let {PASSPHRASE_FILE}"),
        ({PASSPHRASE: "wrong"}, "the passphrase doesn't open it"),
        ({PASSPHRASE_FILE: "/no/such/file"}, "/no/such/file can't be read"),
        ({PASSPHRASE: "a", PASSPHRASE_FILE: "b"}, "exclude each other"),
    ],
)
def test_a_passphrase_that_does_not_open_the_key(
    tmp_path: Path, given: dict[str, str], said: str
) -> None:
    private, _ = made(tmp_path, passphrase=SECRET)
    with pytest.raises(StackError) as raised:
        signer_of(private, given)
    assert said in str(raised.value)
    assert "wrong" not in str(raised.value)


class Rsa:
    @staticmethod
    def generate() -> rsa.RSAPrivateKey:
        return rsa.generate_private_key(65537, 2048)


class Curve:
    @staticmethod
    def generate() -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Rsa, "RSA"),
        (Curve, "EC"),
        (x25519.X25519PrivateKey, "X25519"),
        (ed448.Ed448PrivateKey, "Ed448"),
    ],
)
def test_a_key_of_another_kind(tmp_path: Path, kind: Any, name: str) -> None:
    private, public = made(tmp_path, kind=kind)
    with pytest.raises(StackError, match=f"(?s)given a key .*{name}.*allowed: Ed25519"):
        signer_of(private, {})
    page = tmp_path / "evidence.html"
    page.write_text("x")
    Path(f"{page}.sig").write_bytes(bytes(64))
    with pytest.raises(StackError, match=f"(?s)given a key .*{name}.*allowed: Ed25519"):
        verify_evidence(str(page), str(public))


@pytest.mark.parametrize(
    "content", [b"", b"no key", b"\x00\xff" * 50, b"-----BEGIN PRIVATE KEY-----"]
)
def test_what_is_no_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key.pem"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(StackError, match="no private key can be read from it"):
        signer_of(path, {})
    with pytest.raises(StackError, match="no public key can be read from it"):
        verify_evidence(str(tmp_path / "evidence.html"), str(path))


def test_the_two_keys_taken_for_each_other(tmp_path: Path) -> None:
    private, public = made(tmp_path)
    with pytest.raises(StackError, match="no private key can be read"):
        signer_of(public, {})
    with pytest.raises(StackError) as raised:
        verify_evidence(str(tmp_path / "evidence.html"), str(private))
    assert "no public key can be read" in str(raised.value)
    secret = "".join(private.read_text().splitlines()[1:-1])
    assert secret not in str(raised.value)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o600, 0o400])
def test_a_key_that_others_can_read_is_warned_about(
    tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    private, _ = made(tmp_path)
    private.chmod(mode)
    signer = signer_of(private, {})
    said = capsys.readouterr().out
    assert (f"can be read by others (mode {mode:04o})" in said) == (mode & 0o044 != 0)
    # Nothing that is printed holds the key.
    secret = "".join(private.read_text().splitlines()[1:-1])
    assert secret not in said + repr(signer) + str(signer)


def falaj(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "falaj.stacks.command", *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )  # fmt: skip


@pytest.mark.slow
def test_the_command_signs_and_verifies(tmp_path: Path) -> None:
    private, public = made(tmp_path, passphrase=SECRET)
    (tmp_path / "policies.json").write_text(small().to_json())
    done = falaj(
        tmp_path, "report", "--from", "policies.json", "--lang", "ar", "--sign-key", str(private),
        FALAJ_SIGN_PASSPHRASE=SECRET,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr  # the result has violations
    assert "signed by the key sha256:" in done.stdout
    assert SECRET not in done.stdout + done.stderr
    page = tmp_path / "evidence.html"
    verify = ["report", "--verify", "evidence.html", "--key", str(public)]
    assert 'dir="rtl"' in page.read_text("utf-8")
    assert verified_by_openssl(page, public)
    done = falaj(tmp_path, *verify)
    assert (done.returncode, done.stdout[:5]) == (0, "good:")
    page.write_text("x")
    done = falaj(tmp_path, *verify)
    assert (done.returncode, done.stdout.split(":")[0]) == (1, "not verified")
    # The signature of a page that is written over is no signature of the new one.
    (tmp_path / "state.json").write_text('{"version": 3, "deployment": {"resources": []}}')
    done = falaj(tmp_path, "check", "--state", "state.json", "--html", "evidence.html")
    assert "this one isn't signed" in done.stdout, done.stdout + done.stderr
    assert falaj(tmp_path, *verify).returncode == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--verify", "evidence.html"], "name the public key of who signed"),
        (["--key", "k"], "--key: given without --verify"),
        (["--verify", "evidence.html", "--key", "missing.pem"], "missing.pem can't be read"),
        (["--from", "old.json"], "written by another version of Falaj: given falaj.check/1"),
        (["--from", "old.json", "--sign-key", "missing.pem"], "--sign-key: missing.pem can't"),
    ],
)
def test_what_the_command_refuses(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "old.json").write_text('{"schema": "falaj.check/1", "stacks": []}')
    done = falaj(tmp_path, "report", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "evidence.html").exists()
