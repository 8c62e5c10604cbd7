"""Forms of texts that several components, or components and stack settings, have in common."""

from __future__ import annotations

from typing import Final

from falaj.components.specification.limits import OneOf, TextRule

TENANT: Final = TextRule(
    r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$",
    "2 to 20 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "acme",
)
#: What both clouds allow in a tag's value: https://docs.aws.amazon.com/tag-editor/latest/userguide/
#: tagging.html (the stricter of the two).
TAG_VALUE: Final = TextRule(
    r"^[\w .:/=+@-]{1,256}$",
    "1 to 256 letters, digits, spaces and . : / = + @ - _",
    "platform@example.ae",
)
ENVIRONMENT: Final = OneOf(("development", "test", "production"))
DEFAULT_ENVIRONMENT: Final = "production"
#: How much harm it does if somebody else reads the data, from none upwards.
DATA_CLASS: Final = OneOf(("public", "internal", "confidential", "restricted"))
#: Names that become part of the names in a cloud.
NAME: Final = TextRule(
    r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$",
    "2 to 40 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "main",
)
#: https://kubernetes.io/docs/concepts/overview/working-with-objects/names/ (RFC 1123 labels)
OBJECT: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
    "at most 63 lower-case letters, digits and '-', not at either end",
    "training",
)
#: A workload's name leaves room for what controllers append to it.
WORKLOAD: Final = TextRule(
    r"^[a-z](?:[a-z0-9-]{0,38}[a-z0-9])?$",
    "1 to 40 lower-case letters, digits and '-', the first a letter, the last no '-'",
    "credit",
)
EMAIL: Final = TextRule(
    r"^[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,63}$",
    "an e-mail address",
    "ops@example.ae",
)
#: Both clouds send a budget's alert to ten addresses at most: https://docs.aws.amazon.com/
#: cost-management/latest/userguide/management-limits.html
MOST_EMAILS: Final = 10
#: https://github.com/opencontainers/image-spec/blob/main/descriptor.md#digests
DIGEST: Final = TextRule(
    r"^sha256:[0-9a-f]{64}$",
    "a digest: sha256: and 64 hexadecimal digits",
    "sha256:" + "0" * 64,
)
#: A site is the value of a node label: one word, so that no region abroad is taken for one.
SITE: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$",
    "the site's name: up to 40 lower-case letters, digits and '-'",
    "abudhabi-dc1",
)
#: Host, port and path of a registry: github.com/distribution/reference, in lower case.
REGISTRY: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*(?::\d{1,5})?"
    r"(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*$",
    "a host in lower case, with port and path where it has them",
    "registry.example.ae/falaj",
)
