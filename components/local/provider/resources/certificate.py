"""Certificate: a leaf certificate of a server or a client."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from falaj.components.local.machine import files
from falaj.components.local.machine.errors import InvalidInput, InvalidInputsError
from falaj.components.local.provider import pki
from falaj.components.local.provider.fields import Field, Table, text, texts, whole
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.components.local.provider.resources.certificate_authority import describe, ends, renewal
from falaj.components.local.provider.resources.common import NAME_HINT, NAME_PATTERN, SITE
from falaj.wire.values import UNKNOWN, Values

_DNS_OR_IP = r"[A-Za-z0-9*:]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?"


class CertificateHandler(Handler):
    """Makes a leaf; renews it with a new key when two thirds of its life are over."""

    type_name: ClassVar[str] = "Certificate"
    summary: ClassVar[str] = "A leaf certificate signed by the site's authority."
    table: ClassVar[Table] = {
        "site": SITE,
        "fileName": Field(
            "text", "Name of the files, without suffix.", required=True, replaces=True,
            pattern=NAME_PATTERN, pattern_hint=NAME_HINT,
        ),
        "usage": Field(
            "text", "Which side of TLS it is for.", default="server", choices=("server", "client")
        ),
        "commonName": Field(
            "text", "Common name; for a client it is the name that access is granted to.",
            required=True, pattern=r"[^\x00-\x1f]{1,64}",
            pattern_hint="1 to 64 printable characters",
        ),
        "names": Field(
            "texts",
            "DNS names and IP addresses; a server always has localhost, 127.0.0.1 and ::1 too.",
            default=[], pattern=_DNS_OR_IP, pattern_hint="DNS names or IP addresses",
        ),
        "days": Field("whole", "Life in days.", default=90, minimum=1, maximum=825),
        "authorityFingerprint": Field(
            "text", "The authority's fingerprint: a new authority makes a new leaf.", required=True
        ),
    }  # fmt: skip
    outputs: ClassVar[Mapping[str, str]] = {
        "certificatePath": "PEM file of the certificate.",
        "privateKeyPath": "PEM file of the private key, mode 0600.",
        "fingerprint": "SHA-256 of the certificate.",
        "notBefore": "Begin of its life.",
        "notAfter": "End of its life.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """The name of the authority's own files is taken."""
        checked = super().check(given, old)
        if checked.get("fileName") == "ca":
            reason = "given 'ca'; allowed: any other name, this one is the authority's"
            raise InvalidInputsError([InvalidInput("fileName", reason)])
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """Missing, damaged, or due for renewal."""
        return renewal(self._load(state), state)

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Paths follow from the site and the name."""
        expected = {**inputs, **dict.fromkeys(self.outputs, UNKNOWN)}
        if isinstance(inputs.get("site"), str) and isinstance(inputs.get("fileName"), str):
            certificate, key = self._paths(inputs)
            expected.update(certificatePath=str(certificate), privateKeyPath=str(key))
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the certificate, in place of what an interrupted run may have left."""
        del context
        made = self._make(inputs)
        return str(made.certificate_path), _state(inputs, made)

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when one of its files is."""
        found = self._load(state)
        return None if found is None else _state(state, found)

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Make a new one under the same names of files."""
        made = self._make(inputs)
        context.say(f"made a certificate for {made.common_name}, good until {ends(made)}")
        return _state(inputs, made)

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Shred the key and remove the certificate."""
        del context
        certificate, key = self._paths(state)
        files.shred(key)
        certificate.unlink(missing_ok=True)

    def _paths(self, values: Values) -> tuple[Path, Path]:
        folder, name = self.site_of(values).pki, text(values, "fileName")
        return folder / f"{name}.crt", folder / f"{name}.key"

    def _load(self, values: Values) -> pki.Issued | None:
        return pki.load(*self._paths(values))

    def _make(self, inputs: Values) -> pki.Issued:
        return pki.make_leaf(
            self.site_of(inputs).pki,
            text(inputs, "fileName"),
            usage="server" if text(inputs, "usage") == "server" else "client",
            common_name=text(inputs, "commonName"),
            names=texts(inputs, "names"),
            days=whole(inputs, "days"),
        )


def _state(values: Values, issued: pki.Issued) -> Values:
    return {**values, **describe(issued), "privateKeyPath": str(issued.key_path)}
