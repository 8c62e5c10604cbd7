"""Secrets that certificates and entries of a store ask for on real machines."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from falaj.engine.controlplane.objects import Objects
from falaj.engine.controlplane.operators import Operators, issuer, store, write_entry
from falaj.engine.controlplane.processes import Files
from falaj.engine.errors import EngineError


class Held:
    """Objects of a cluster, in memory."""

    def __init__(self, *given: Mapping[str, Any]) -> None:
        self.given = given
        self.secrets: dict[str, dict[str, Any]] = {}
        self.served = {"Certificate", "ExternalSecret"}

    def serves(self, version: str, kind: str) -> bool:
        return kind in self.served

    def list(self, version: str, kind: str) -> list[Mapping[str, Any]]:
        assert self.serves(version, kind)
        return [each for each in self.given if each["kind"] == kind]

    def get(self, version: str, kind: str, name: str, namespace: str) -> dict[str, Any] | None:
        return self.secrets.get(f"{namespace}/{name}")

    def apply(self, manifests: Iterable[Mapping[str, Any]], manager: str) -> None:
        for each in manifests:
            about = each["metadata"]
            self.secrets[f"{about['namespace']}/{about['name']}"] = dict(each)

    def value(self, secret: str, key: str) -> bytes:
        return base64.b64decode(self.secrets[secret]["data"][key])


def certificate(name: str, **spec: Any) -> dict[str, Any]:
    about = {"name": name, "namespace": "acme-serving"}
    return {"kind": "Certificate", "metadata": about, "spec": {"secretName": name, **spec}}


def entry(key: str, decoding: str = "None") -> dict[str, Any]:
    remote = {"key": key, "decodingStrategy": decoding}
    return {
        "kind": "ExternalSecret", "metadata": {"name": "keys", "namespace": "acme-training"},
        "spec": {"data": [{"secretKey": "ring", "remoteRef": remote}]},
    }  # fmt: skip


def kept(files: Files, *given: Mapping[str, Any]) -> Held:
    held = Held(*given)
    Operators(files, cast("Objects", held)).keep()
    return held


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path / "plane")


def test_certificates_are_of_an_authority_that_no_api_server_trusts(files: Files) -> None:
    held = kept(
        files,
        certificate("digits-tls", dnsNames=["digits.acme-serving.svc"], commonName="digits"),
        certificate("scraper", commonName="prometheus"),
    )
    server = x509.load_pem_x509_certificate(held.value("acme-serving/digits-tls", "tls.crt"))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["digits.acme-serving.svc"]
    client = x509.load_pem_x509_certificate(held.value("acme-serving/scraper", "tls.crt"))
    assert client.subject.rfc4514_string() == "CN=prometheus"
    authority = issuer(files).certificate
    assert held.value("acme-serving/scraper", "ca.crt") == authority.read_bytes()
    assert authority != files.authority


def test_entries_are_brought_and_follow_the_store(files: Files) -> None:
    asked = entry("acme/training-keys", "Base64")
    held = kept(files, asked)
    assert held.secrets == {}, "until the entry is there"
    write_entry(files, "acme/training-keys", base64.b64encode(b"ring"))
    assert (store(files) / "acme" / "training-keys").stat().st_mode & 0o777 == 0o600
    operators = Operators(files, cast("Objects", held))
    operators.keep()
    assert held.value("acme-training/keys", "ring") == b"ring"
    write_entry(files, "acme/training-keys", base64.b64encode(b"rotated"))
    operators.keep()
    assert held.value("acme-training/keys", "ring") == b"rotated"


def test_what_one_can_t_get_keeps_the_others_from_nothing(
    files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    write_entry(files, "acme/plain", b"plain")
    long = f"{'long-' * 11}tls"
    held = kept(
        files,
        certificate("workload", uris=["spiffe://cluster.local/ns/acme"]),
        certificate("user", commonName="u" * 65),
        entry("acme/plain", "Base64"),
        certificate(long, dnsNames=["long.acme-serving.svc"]),
    )
    assert list(held.secrets) == [f"acme-serving/{long}"]
    said = capsys.readouterr().err
    assert "acme-serving/workload gets no secret: given neither dnsNames nor commonName" in said
    assert "acme-serving/user gets no secret" in said
    assert "acme-training/keys gets no secret" in said


@pytest.mark.parametrize("name", ["../ca.key", "acme/../../ca.key", "acme", "acme/Keys"])
def test_no_name_leads_out_of_the_store(files: Files, name: str) -> None:
    with pytest.raises(EngineError, match="allowed: TENANT/NAME"):
        write_entry(files, name, b"")
    outside = store(files) / name
    outside.parent.mkdir(parents=True, exist_ok=True)
    outside.write_bytes(b"secret")
    assert kept(files, entry(name)).secrets == {}


def test_what_the_cluster_has_no_definition_of_isnt_asked_for(files: Files) -> None:
    held = Held(certificate("scraper", commonName="prometheus"))
    held.served = {"ExternalSecret"}
    operators = Operators(files, cast("Objects", held))
    operators.keep()
    assert held.secrets == {}
    held.served.add("Certificate")
    operators.keep()
    assert set(held.secrets) == {"acme-serving/scraper"}
