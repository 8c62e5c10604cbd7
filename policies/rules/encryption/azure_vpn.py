"""Azure: tunnels between networks use algorithms that still hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    leaves,
    rule,
    spell,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.types import azure

_CONNECTIONS: Final = azure("network:VirtualNetworkGatewayConnection")
_TYPES: Final = _CONNECTIONS | azure(
    "network:VirtualNetworkGateway",
    "network:VpnConnection",
    "network:VpnGateway",
    "network:VpnServerConfiguration",
    "network:P2sVpnServerConfiguration",
)
#: What RFC 8247 and RFC 8221 say must not or should not be used, by setting, in small letters.
_WEAK: Final = {
    "ikeEncryption": {"des", "des3"},
    "ikeIntegrity": {"md5", "sha1"},
    "ipsecEncryption": {"none", "des", "des3"},
    "ipsecIntegrity": {"md5", "sha1"},
    "dhGroup": {"none", "dhgroup1", "dhgroup2", "dhgroup24"},
    "pfsGroup": {"none", "pfs1", "pfs2", "pfs24"},
    "connectionProtocol": {"ikev1"},
    "vpnConnectionProtocolType": {"ikev1"},
    "vpnType": {"policybased"},
}


@rule(
    "encryption-azure-vpn",
    "Tunnels use IKEv2 with AES-256, SHA-256 and groups of 2048 bits or more",
    Severity.MEDIUM,
    _TYPES,
    ("iso27001:A.8.24", "iso27001:A.8.20", "uae-ia:T4.2.x", "nist-800-207:2"),
    "Give the connection an `ipsecPolicies` entry of its own: IKEv2, AES256 or GCMAES256, SHA256 "
    "or SHA384, DHGroup14 or an elliptic curve, and the same for perfect forward secrecy.",
)
def _vpn(resource: Resource, view: View) -> Iterator[Finding]:
    for path, value in leaves(resource.properties):
        name = next((each for each in reversed(path) if isinstance(each, str)), "")
        if name in _WEAK and isinstance(value, Unknown):
            yield indeterminate(spell(path), f"{name} {value.reason}")
        elif text(value).lower() in _WEAK.get(name, ()):
            yield violation(spell(path), f"{name} is {text(value)}, which is broken or too short")
    policies = resource.get("ipsecPolicies")
    if isinstance(policies, Unknown):
        yield indeterminate("ipsecPolicies", f"ipsecPolicies {policies.reason}")
    elif (
        resource.kind in _CONNECTIONS
        and (policies is ABSENT or policies == [])
        and text(resource.get("connectionType")).lower() == "ipsec"
    ):
        # https://learn.microsoft.com/azure/vpn-gateway/vpn-gateway-about-vpn-devices#ipsec
        why = "ipsecPolicies isn't given, and Azure's own proposals include SHA1 and DHGroup2"
        yield violation("ipsecPolicies", why)


RULES: tuple[Rule, ...] = (_vpn,)
