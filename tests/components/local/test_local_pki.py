"""Certificates: the chain verifies, lives are as asked, renewal comes at two thirds."""

from __future__ import annotations

import ipaddress
import os
import resource
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from falaj.components.local.machine import InvalidInputsError, LocalError
from falaj.components.local.provider.resources import certificates
from falaj.components.local.provider.resources.certificates import (
    CertificateAuthorityHandler,
    CertificateHandler,
)


def leaf(folder: Path, **changes: Any) -> certificates.Issued:
    settings: dict[str, Any] = {
        "usage": "server",
        "common_name": "localhost",
        "names": ["models.example.ae", "10.1.2.3"],
        "days": 90,
    }
    return certificates.make_leaf(folder, "server", **{**settings, **changes})


def verify(folder: Path, issued: certificates.Issued, name: str) -> None:
    authority = x509.load_pem_x509_certificate((folder / "ca.crt").read_bytes())
    verifier = PolicyBuilder().store(Store([authority])).build_server_verifier(x509.DNSName(name))
    verifier.verify(issued.certificate, [])


def test_without_an_authority_there_is_no_leaf(site: Path) -> None:
    with pytest.raises(LocalError, match=r"authority in .* is missing"):
        leaf(site)


def test_another_authority_does_not_verify(site: Path, tmp_path: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    issued = leaf(site)
    certificates.make_authority(tmp_path / "theirs", "theirs", 10)
    with pytest.raises(VerificationError):
        verify(tmp_path / "theirs", issued, "localhost")


def test_a_foreign_name_does_not_verify(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    with pytest.raises(VerificationError):
        verify(site, leaf(site), "elsewhere.example.com")


def test_the_chain_verifies(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    issued = leaf(site)
    verify(site, issued, "localhost")
    verify(site, issued, "models.example.ae")


def test_a_server_always_has_the_local_names(site: Path) -> None:
    certificates.make_authority(site, "ours", 1000)
    names = leaf(site).certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == ["localhost", "models.example.ae"]
    assert names.value.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address(address) for address in ("127.0.0.1", "::1", "10.1.2.3")
    ]


def test_each_usage_is_good_for_its_side_only(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    for usage, purpose in (
        ("server", ExtendedKeyUsageOID.SERVER_AUTH),
        ("client", ExtendedKeyUsageOID.CLIENT_AUTH),
    ):
        extension = leaf(site, usage=usage).certificate.extensions
        assert list(extension.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]


def test_keys_are_p256_private_and_new_each_time(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    first, second = leaf(site), leaf(site)
    key = second.certificate.public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert key.curve.name == "secp256r1"
    assert first.fingerprint != second.fingerprint
    assert first.certificate.public_key() != key
    for file in (site / "ca.key", site / "server.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_leaf_lives_as_long_as_asked_but_not_longer_than_the_authority(site: Path) -> None:
    authority = certificates.make_authority(site, "ours", 30)
    short = leaf(site, days=7).certificate
    assert short.not_valid_after_utc - short.not_valid_before_utc == timedelta(days=7, minutes=5)
    long = leaf(site, days=90).certificate
    assert long.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_renewal_is_due_at_two_thirds() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    end = begin + timedelta(days=90)
    assert not certificates.is_due(begin, end, begin + timedelta(days=59, hours=23))
    assert certificates.is_due(begin, end, begin + timedelta(days=60))


def test_a_full_disk_leaves_the_pair_that_works(site: Path) -> None:
    """The key fits where the certificate doesn't: both are in place, or neither."""
    certificates.make_authority(site, "ours", 10)
    before = leaf(site)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, hard))
    try:
        with pytest.raises(LocalError, match="no space left while writing"):
            leaf(site)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    kept = certificates.load(before.certificate_path, before.key_path)
    assert kept is not None
    assert kept.fingerprint == before.fingerprint
    assert sorted(file.name for file in site.iterdir()) == [
        "ca.crt", "ca.key", "server.crt", "server.key",
    ]  # fmt: skip


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("fails", [1, 2])
def test_a_fault_between_the_two_files_puts_the_pair_back(
    site: Path, monkeypatch: pytest.MonkeyPatch, fails: int, exists: bool
) -> None:
    certificates.make_authority(site, "ours", 10)
    before = leaf(site) if exists else None
    replace, calls = Path.replace, 0

    def failing(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls == fails:
            raise OSError(5, "Input/output error")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(LocalError, match="Input/output error"):
        leaf(site)
    kept = certificates.load(site / "server.crt", site / "server.key")
    assert (kept and kept.fingerprint) == (before and before.fingerprint)
    assert len(list(site.iterdir())) == (4 if exists else 2)


def test_the_key_before_is_shredded(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    old = leaf(site).key_path
    secret = old.read_bytes()
    descriptor = os.open(old, os.O_RDONLY)
    try:
        leaf(site)
        assert os.pread(descriptor, len(secret), 0) not in (secret, b"")
    finally:
        os.close(descriptor)


def test_a_key_of_another_pair_is_not_loaded(site: Path) -> None:
    certificates.make_authority(site, "ours", 10)
    leaf(site)
    assert certificates.load(site / "server.crt", site / "ca.key") is None
    (site / "server.key").write_bytes(b"damaged")
    assert certificates.load(site / "server.crt", site / "server.key") is None


@pytest.fixture
def made(site: Path, said: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """State of an authority and of a leaf."""
    authority = CertificateAuthorityHandler()
    _, state = authority.create(said.context(), authority.check({"site": str(site)}, {}))
    handler = CertificateHandler()
    inputs = {
        "site": str(site),
        "fileName": "server",
        "commonName": "localhost",
        "authorityFingerprint": state["fingerprint"],
    }
    _, leaf_state = handler.create(said.context(), handler.check(inputs, {}))
    return state, leaf_state


def inputs_of(handler: Any, state: dict[str, Any]) -> dict[str, Any]:
    return {key: state[key] for key in handler.table if key in state}


def test_no_private_key_reaches_the_state(made: tuple[dict[str, Any], dict[str, Any]]) -> None:
    assert "PRIVATE" not in repr(made)


def test_unchanged_certificates_are_left_alone(
    made: tuple[dict[str, Any], dict[str, Any]],
) -> None:
    for handler, state in zip(
        (CertificateAuthorityHandler(), CertificateHandler()), made, strict=True
    ):
        assert handler.diff(state, inputs_of(handler, state)) == {}


@pytest.mark.parametrize("which", [0, 1])
def test_one_that_is_due_is_renewed_in_place(
    made: tuple[dict[str, Any], dict[str, Any]],
    which: int,
    said: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handler = (CertificateAuthorityHandler(), CertificateHandler())[which]
    state = made[which]
    inputs = inputs_of(handler, state)
    real = certificates.is_due
    later = datetime.now(UTC) + timedelta(days=1300 if which == 0 else 61)
    monkeypatch.setattr(certificates, "is_due", lambda begin, end: real(begin, end, later))  # pyright: ignore
    changes = handler.diff(state, inputs)
    assert set(changes) == {"notAfter"}
    assert not changes["notAfter"].replaces
    after = handler.update(said.context(), "id", state, inputs)
    assert after["fingerprint"] != state["fingerprint"]


def test_missing_files_are_gone_for_read_and_a_change_for_diff(
    made: tuple[dict[str, Any], dict[str, Any]], site: Path
) -> None:
    handler, state = CertificateHandler(), made[1]
    (site / "pki" / "server.key").unlink()
    assert handler.read("id", state) is None
    assert set(handler.diff(state, inputs_of(handler, state))) == {"fingerprint"}


def test_delete_shreds_and_bears_what_is_gone(
    made: tuple[dict[str, Any], dict[str, Any]], site: Path, said: Any
) -> None:
    for _ in range(2):
        CertificateHandler().delete(said.context(), "id", made[1])
        CertificateAuthorityHandler().delete(said.context(), "id", made[0])
    assert list((site / "pki").iterdir()) == []


def test_retained_authority_stays(
    made: tuple[dict[str, Any], dict[str, Any]], site: Path, said: Any
) -> None:
    CertificateAuthorityHandler().delete(said.context(), "id", {**made[0], "retain": True})
    assert (site / "pki" / "ca.key").is_file()


def test_the_name_of_the_authority_is_taken(site: Path) -> None:
    inputs = {
        "site": str(site),
        "fileName": "ca",
        "commonName": "x",
        "authorityFingerprint": "y",
    }
    with pytest.raises(InvalidInputsError, match="any other name"):
        CertificateHandler().check(inputs, {})
