"""CertificateAuthority: signs the certificates of a site's services and clients."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar

from falaj.components.local.machine import files
from falaj.components.local.provider import pki
from falaj.components.local.provider.fields import Field, Table, flag, text, whole
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.components.local.provider.resources.common import SITE
from falaj.components.local.provider.site import Site
from falaj.wire.values import UNKNOWN, Values


class CertificateAuthorityHandler(Handler):
    """Makes the authority; renews it with a new key when two thirds of its life are over."""

    type_name: ClassVar[str] = "CertificateAuthority"
    summary: ClassVar[str] = "A certificate authority of the site (ECDSA P-256)."
    table: ClassVar[Table] = {
        "site": SITE,
        "commonName": Field(
            "text", "Common name of the authority.", default="Falaj local authority",
            pattern=r"[^\x00-\x1f]{1,64}", pattern_hint="1 to 64 printable characters",
        ),
        "days": Field("whole", "Life in days.", default=1825, minimum=1, maximum=7300),
        "retain": Field("flag", "Keep it when the stack is destroyed.", default=False),
    }  # fmt: skip
    outputs: ClassVar[Mapping[str, str]] = {
        "certificatePath": "PEM file of the certificate, which clients trust.",
        "fingerprint": "SHA-256 of the certificate.",
        "notBefore": "Begin of its life.",
        "notAfter": "End of its life.",
    }

    def drift(self, state: Values) -> dict[str, Change]:
        """Missing, damaged, or due for renewal."""
        return renewal(_load(self.site_of(state)), state)

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """The path follows from the site."""
        expected = {**inputs, **dict.fromkeys(self.outputs, UNKNOWN)}
        if isinstance(inputs.get("site"), str):
            expected["certificatePath"] = str(self.site_of(inputs).pki / "ca.crt")
        if state is not None and not _is_renamed(state, inputs) and not self.drift(state):
            expected.update({key: state[key] for key in self.outputs})
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Make the authority; one that an interrupted run has left is adopted."""
        del context
        site = self.site_of(inputs)
        found = _load(site)
        if found is None or found.common_name != text(inputs, "commonName") or is_over(found):
            found = _make(site, inputs)
        return str(found.certificate_path), {**inputs, **describe(found)}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when one of its files is."""
        found = _load(self.site_of(state))
        return None if found is None else {**state, **describe(found)}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Make a new one, with a new key; leafs follow because its fingerprint changes."""
        found = _load(self.site_of(inputs))
        if found is None or _is_renamed(state, inputs) or is_over(found):
            found = _make(self.site_of(inputs), inputs)
            context.say(f"made a certificate authority, good until {ends(found)}")
        return {**inputs, **describe(found)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Shred the key and remove the certificate, unless they are retained."""
        del context
        if not flag(state, "retain"):
            folder = self.site_of(state).pki
            files.shred(folder / "ca.key")
            (folder / "ca.crt").unlink(missing_ok=True)


def describe(issued: pki.Issued) -> Values:
    """What the engine may know of a certificate."""
    return {
        "certificatePath": str(issued.certificate_path),
        "fingerprint": issued.fingerprint,
        "notBefore": issued.certificate.not_valid_before_utc.isoformat(),
        "notAfter": issued.certificate.not_valid_after_utc.isoformat(),
    }


def renewal(found: pki.Issued | None, state: Values) -> dict[str, Change]:
    """An update when files are missing or damaged, or two thirds of the life are over."""
    if found is None:
        return {"fingerprint": Change(is_input=False)}
    if is_over(found):
        return {"notAfter": Change(is_input=False)}
    if found.fingerprint != state.get("fingerprint"):
        # Made by an interrupted run: the state only has to learn of it.
        return {"fingerprint": Change(is_input=False)}
    return {}


def is_over(issued: pki.Issued) -> bool:
    """Whether it is time for a new one."""
    certificate = issued.certificate
    return pki.is_due(certificate.not_valid_before_utc, certificate.not_valid_after_utc)


def ends(issued: pki.Issued) -> str:
    """The last day of a certificate."""
    moment: datetime = issued.certificate.not_valid_after_utc
    return moment.date().isoformat()


def _is_renamed(state: Values, inputs: Values) -> bool:
    return any(inputs.get(key) != state.get(key) for key in ("commonName", "days"))


def _load(site: Site) -> pki.Issued | None:
    return pki.load(site.pki / "ca.crt", site.pki / "ca.key")


def _make(site: Site, inputs: Values) -> pki.Issued:
    return pki.make_authority(site.pki, text(inputs, "commonName"), whole(inputs, "days"))
