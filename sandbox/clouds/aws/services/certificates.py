"""ACM and its private certificate authorities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.kinds import AwsKind, AwsKinds
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import between, matches, not_together, sized

_DOMAIN: Final = (
    r"(\*\.)?(((?!-)[A-Za-z0-9-]{0,62}[A-Za-z0-9])\.)+((?!-)[A-Za-z0-9-]{1,62}[A-Za-z0-9])"
)
_PEM: Final = (
    "-----BEGIN CERTIFICATE-----\n"
    "U0FOREJPWDogbm8gY2VydGlmaWNhdGUsIG5vdGhpbmcgcmVhbCBpcyBiZWhpbmQgdGhpcw==\n"
    "-----END CERTIFICATE-----\n"
)
"""In the form of a certificate, with a text in it that says that it is none."""


def _source(inputs: Inputs) -> Iterator[Problem]:
    """A certificate is imported, validated by DNS or e-mail, or of a private authority."""
    imported = inputs.is_given("privateKey") or inputs.is_given("certificateBody")
    if imported:
        for path in ("privateKey", "certificateBody"):
            if not inputs.is_given(path):
                yield Problem(path, "is missing; an imported certificate needs both parts")
        return
    if not inputs.is_given("domainName"):
        yield Problem("domainName", "is missing; give it, or import a certificate")
    if not inputs.is_given("certificateAuthorityArn") and not inputs.is_given("validationMethod"):
        yield Problem(
            "validationMethod", "is missing; give DNS or EMAIL, or a certificateAuthorityArn"
        )


def _certificate(resource: Resource) -> Mapping[str, Any]:
    private = bool(resource.string("certificateAuthorityArn"))
    domain = resource.string("domainName")
    host = domain.removeprefix("*.")
    options: list[dict[str, str]] = []
    if resource.get("validationMethod") == "DNS":
        options = [{
            "domainName": domain,
            "resourceRecordName": f"_sandbox.{host}.",
            "resourceRecordType": "CNAME",
            "resourceRecordValue": "_sandbox.acm-validations.aws.",
        }]  # fmt: skip
    return {
        "domainValidationOptions": options,
        "status": "ISSUED" if private or not options else "PENDING_VALIDATION",
        "type": "PRIVATE" if private else "AMAZON_ISSUED",
        "keyAlgorithm": resource.get("keyAlgorithm") or "RSA_2048",
        "renewalEligibility": "INELIGIBLE",
        "validationEmails": [],
    }


_AUTHORITY: Final = Reference("certificateAuthorityArn", (t.AUTHORITY,), by=("arn",), holds=False)

KINDS: Final[AwsKinds] = {
    t.CERTIFICATE: AwsKind(
        id="arn:{partition}:acm:{region}:{account}:certificate/{uuid}",
        arn="*",
        replaces=("certificateAuthorityArn", "domainName", "keyAlgorithm", "options.export",
                  "subjectAlternativeNames", "validationMethod"),
        rules=(
            _source,
            matches("domainName", _DOMAIN, "a domain name such as models.example.ae"),
            sized("domainName", 1, 253, "characters"),
            sized("subjectAlternativeNames", 0, 100),
            not_together("certificateAuthorityArn", "validationMethod"),
        ),
        references=(_AUTHORITY,),
        computed=_certificate,
    ),
    "aws:acm/certificateValidation:CertificateValidation": AwsKind(
        id="{certificateArn}",
        replaces=("certificateArn", "validationRecordFqdns"),
        references=(Reference("certificateArn", (t.CERTIFICATE,), by=("arn",), holds=False),),
    ),
    t.AUTHORITY: AwsKind(
        id="arn:{partition}:acm-pca:{region}:{account}:certificate-authority/{uuid}",
        arn="*",
        replaces=("certificateAuthorityConfiguration", "keyStorageSecurityStandard", "type",
                  "usageMode"),
        rules=(
            between("permanentDeletionTimeInDays", 7, 30, "days"),
            between("revocationConfiguration.crlConfiguration.expirationInDays", 1, 5000, "days"),
        ),
        references=(links.bucket("revocationConfiguration.crlConfiguration.s3BucketName"),),
        computed=lambda _: {
            "certificate": "", "certificateChain": "",
            "certificateSigningRequest": _PEM.replace("CERTIFICATE", "CERTIFICATE REQUEST"),
            "notAfter": "2036-01-01T00:00:00Z", "notBefore": "2026-01-01T00:00:00Z", "serial": "1",
        },
        defaults={"type": "SUBORDINATE", "enabled": True, "usageMode": "GENERAL_PURPOSE"},
    ),
    t.AUTHORITY_ISSUED: AwsKind(
        id="{certificateAuthorityArn}/certificate/{hex32}",
        arn="*",
        replaces=("apiPassthrough", "certificateAuthorityArn", "certificateSigningRequest",
                  "signingAlgorithm", "templateArn", "validity"),
        rules=(
            matches("templateArn", r"arn:aws[a-z-]*:acm-pca:::template/[\w+-]+/V\d",
                    "a template's ARN"),
        ),
        references=(_AUTHORITY,),
        computed=lambda _: {"certificate": _PEM, "certificateChain": _PEM},
    ),
    "aws:acmpca/certificateAuthorityCertificate:CertificateAuthorityCertificate": AwsKind(
        id="{certificateAuthorityArn}",
        replaces=("certificate", "certificateAuthorityArn", "certificateChain"),
        references=(_AUTHORITY,),
    ),
}  # fmt: skip
