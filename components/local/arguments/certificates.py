"""What `falaj.components.local.CertificateAuthority` and `Certificate` take."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NAME, REPLACES, SiteArgs
from falaj.components.specification.arguments import Default, Input
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between, OneOf, TextRule

_COMMON_NAME: Final = TextRule(
    r"^[^\x00-\x1f]{1,64}$", "1 to 64 printable characters", "models.example.ae"
)
_DNS_OR_IP: Final = TextRule(
    r"^[A-Za-z0-9*:]([A-Za-z0-9.:_-]{0,251}[A-Za-z0-9])?$",
    "DNS names or IP addresses",
    "models.example.ae",
)
_USAGE: Final = OneOf(("server", "client"))
_DAYS_OF_AUTHORITY: Final = Between(1, 7_300)
_DAYS: Final = Between(1, 825)


@described
class CertificateAuthorityArgs(SiteArgs):
    """Arguments of `CertificateAuthority`."""

    common_name: NotRequired[Annotated[Input[str], _COMMON_NAME, Default("Falaj local authority")]]
    """Its common name."""
    days: NotRequired[Annotated[Input[int], _DAYS_OF_AUTHORITY, Default(1_825)]]
    """Its life in days; a new one, with a new key, is made on the first ``pulumi up`` after two
    thirds of it."""
    retain: NotRequired[Annotated[Input[bool], Default(value=False)]]
    """Keep it when the stack is destroyed; else the key is shredded."""


@described
class CertificateArgs(SiteArgs):
    """Arguments of `Certificate`."""

    file_name: Annotated[Input[str], NAME, REPLACES]
    """Name of its two files in ``pki/``, without suffix."""
    usage: NotRequired[Annotated[Input[str], _USAGE, Default("server")]]
    """Which side of TLS it is for."""
    common_name: Annotated[Input[str], _COMMON_NAME]
    """Its common name; for a client it is the name that access is granted to."""
    names: NotRequired[Annotated[Input[list[str]], _DNS_OR_IP, Default([])]]
    """DNS names and IP addresses; by default none. A server always has localhost, 127.0.0.1 and
    ::1 too."""
    days: NotRequired[Annotated[Input[int], _DAYS, Default(90)]]
    """Its life in days; a new one is made on the first ``pulumi up`` after two thirds of it."""
    authority_fingerprint: Input[str]
    """The authority's fingerprint (``CertificateAuthority.fingerprint``): a new authority makes a
    new leaf."""
