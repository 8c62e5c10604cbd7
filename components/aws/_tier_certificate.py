"""A private certificate for the inference tier, from an authority of its own in the region."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, stateful
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierSpec

#: docs.aws.amazon.com/privateca/latest/userguide/UsingTemplates.html
_ROOT_TEMPLATE = "arn:aws:acm-pca:::template/RootCACertificate/V1"
_SIGNATURE = "SHA384WITHECDSA"
_YEARS = 10


def private_certificate(parent: pulumi.Resource, spec: CpuInferenceTierSpec) -> pulumi.Output[str]:
    """ARN of a certificate for the tier's name, which ACM renews by itself.

    The authority is a general-purpose one: ACM can't issue from those for short-lived certificates
    (docs.aws.amazon.com/privateca/latest/userguide/short-lived-certificates.html). It issues for
    nobody else, so that there is nothing to revoke.
    """
    tags = spec.placed.tags(spec.name)
    authority = aws.acmpca.CertificateAuthority(
        f"{spec.name}-authority",
        type="ROOT",
        usage_mode="GENERAL_PURPOSE",
        key_storage_security_standard="FIPS_140_2_LEVEL_3_OR_HIGHER",
        certificate_authority_configuration=(
            aws.acmpca.CertificateAuthorityCertificateAuthorityConfigurationArgs(
                key_algorithm="EC_secp384r1",
                signing_algorithm=_SIGNATURE,
                subject=(
                    aws.acmpca.CertificateAuthorityCertificateAuthorityConfigurationSubjectArgs(
                        # X.520: a common name has at most 64 characters.
                        common_name=f"{spec.host_name} authority"[:64],
                        organization=spec.placed.tenant,
                        country="AE",
                    )
                ),
            )
        ),
        # The shortest that can be asked for: until then a deletion can be taken back.
        permanent_deletion_time_in_days=30 if spec.placed.retained else 7,
        tags=tags,
        opts=stateful(parent, spec.placed),
    )
    root = aws.acmpca.Certificate(
        f"{spec.name}-authority",
        certificate_authority_arn=authority.arn,
        certificate_signing_request=authority.certificate_signing_request,
        signing_algorithm=_SIGNATURE,
        template_arn=_ROOT_TEMPLATE,
        validity=aws.acmpca.CertificateValidityArgs(type="YEARS", value=str(_YEARS)),
        opts=child(parent),
    )
    installed = aws.acmpca.CertificateAuthorityCertificate(
        f"{spec.name}-authority",
        certificate_authority_arn=authority.arn,
        certificate=root.certificate,
        certificate_chain=root.certificate_chain,
        opts=child(parent),
    )
    renewal = aws.acmpca.Permission(
        f"{spec.name}-renewal",
        certificate_authority_arn=authority.arn,
        principal="acm.amazonaws.com",
        actions=["IssueCertificate", "GetCertificate", "ListPermissions"],
        opts=child(parent),
    )
    certificate = aws.acm.Certificate(
        spec.name,
        domain_name=spec.host_name,
        certificate_authority_arn=authority.arn,
        key_algorithm="EC_prime256v1",
        tags=tags,
        # An authority without a certificate of its own can't issue.
        opts=child(parent, depends_on=[installed, renewal]),
    )
    return certificate.arn
