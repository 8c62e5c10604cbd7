"""The control plane's authority and what it issues."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store

from falaj.engine.controlplane.certificates import Authority
from falaj.engine.errors import EngineError


def _read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_user_is_the_common_name_and_groups_the_organisations(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").client("oidc:ali", ["acme:trainers", "acme:auditors"])
    subject = _read(pair.certificate).subject
    assert [each.value for each in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [
        "oidc:ali"
    ]
    assert {each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)} == {
        "acme:trainers", "acme:auditors",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", "x" * 65, "a\nb", "a\x00b"])
def test_a_name_that_no_certificate_carries_is_refused(tmp_path: Path, name: str) -> None:
    authority = Authority(tmp_path / "ca")
    with pytest.raises(EngineError, match="can't be put into a client certificate"):
        authority.client(name)
    with pytest.raises(EngineError, match="can't be put into a client certificate"):
        authority.client("ali", [name])


def test_names_of_users_are_no_paths(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").client("../../etc/passwd", file="user-0")
    assert pair.certificate.parent == tmp_path / "ca"


def test_a_server_is_verified_at_its_hosts_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.server("api", ("localhost", "127.0.0.1"))
    store = Store([_read(authority.certificate)])
    verifier = PolicyBuilder().store(store)
    verifier.build_server_verifier(x509.DNSName("localhost")).verify(_read(pair.certificate), [])
    with pytest.raises(x509.verification.VerificationError):
        verifier.build_server_verifier(x509.DNSName("other")).verify(_read(pair.certificate), [])


def test_another_authority_is_not_trusted(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "a").server("api", ("localhost",))
    store = Store([_read(Authority(tmp_path / "b").certificate)])
    verifier = PolicyBuilder().store(store).build_server_verifier(x509.DNSName("localhost"))
    with pytest.raises(x509.verification.VerificationError):
        verifier.verify(_read(pair.certificate), [])


def test_an_authority_is_opened_again(tmp_path: Path) -> None:
    first, second = Authority(tmp_path / "ca"), Authority(tmp_path / "ca")
    assert first.certificate.read_bytes() == second.certificate.read_bytes()
    context = ssl.create_default_context(cafile=str(second.certificate))
    pair = second.client("ali")
    context.load_cert_chain(pair.certificate, pair.key)  # raises if they don't belong together


def test_only_the_user_reads_keys(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.client("ali")
    for path in (pair.key, authority.signing.key):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "ca").stat().st_mode) == 0o700
