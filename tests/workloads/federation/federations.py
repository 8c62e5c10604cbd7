"""An authority with a coordinator and sites, and a table that is split between them."""

from __future__ import annotations

import csv
import datetime
import hashlib
import ipaddress
import json
from pathlib import Path
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.snapshot import open_dataset

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
TOKENS = {f"site-{letter}": f"token-of-site-{letter}-" + letter * 32 for letter in "abc"}


class Authority:
    """Makes certificates in a folder: ``<name>.pem`` and ``<name>.key``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "federation")])
        self.certificate = folder / "authority.pem"
        self._write(self.certificate, self._name, self._key, ca=True)

    def issue(
        self, name: str, key: Key | None = None, folder: Path | None = None
    ) -> tuple[Path, Path]:
        folder, key = folder or self.folder, key or ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate, secret = folder / f"{name}.pem", folder / f"{name}.key"
        self._write(certificate, subject, key, ca=False)
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return certificate, secret

    def _write(self, path: Path, subject: x509.Name, key: Key, *, ca: bool) -> None:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.IPAddress(ipaddress.ip_address(f"127.0.0.{each}")) for each in (1, 2)]
                ),
                critical=False,
            )
        )
        if ca:
            usage = x509.KeyUsage(
                digital_signature=True, key_cert_sign=True, crl_sign=True, key_encipherment=False,
                content_commitment=False, data_encipherment=False, key_agreement=False,
                encipher_only=False, decipher_only=False,
            )  # fmt: skip
            builder = builder.add_extension(usage, critical=True)
        made = builder.sign(self._key, hashes.SHA256())
        path.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def token_digests(folder: Path) -> Path:
    path = folder / "sites.json"
    shown = {site: hashlib.sha256(token.encode()).hexdigest() for site, token in TOKENS.items()}
    path.write_text(json.dumps(shown), encoding="utf-8")
    return path


def tables(folder: Path) -> dict[str, Path]:
    """Snapshots of the breast cancer table: a part for each site and one for reference.

    Parts are disjoint: 130 rows of each site, 179 for reference.
    """
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    header = [name.replace(" ", "_") for name in data.feature_names] + ["diagnosis"]
    rows = [
        [*map(float, values), data.target_names[label]]
        for values, label in zip(data.data, data.target, strict=True)
    ]
    order = np.random.default_rng(3).permutation(len(rows))
    parts = {site: order[130 * n : 130 * (n + 1)] for n, site in enumerate(TOKENS)}
    parts["reference"] = order[390:]
    found: dict[str, Path] = {}
    for name, chosen in parts.items():
        path = folder / f"{name}.csv"
        with path.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([header, *(rows[index] for index in chosen)])
        # Half of the reference rows judge the model.
        share = 0.5 if name == "reference" else 0.2
        made = datasets.build(datasets.Source(str(path), "diagnosis", seed=1, holdout=share))
        found[name] = datasets.write(made, folder / "snapshots", None)
    return found


def central_accuracy(data: dict[str, Path]) -> float:
    """What someone who had the rows of all sites in one place would reach on the same judges."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    def rows(name: str, part: Any) -> tuple[Any, Any]:
        dataset = open_dataset(data[name], None)
        chosen = dataset.rows(part)
        columns = [dataset.inputs[column][chosen] for column in sorted(dataset.inputs)]
        return np.stack(columns, axis=1), dataset.labels[chosen]

    inputs, labels = zip(*(rows(site, "train") for site in TOKENS), strict=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    model.fit(np.concatenate(inputs), np.concatenate(labels))
    return float(model.score(*rows("reference", "held_out")))
