"""cert-manager with a private CA: certificates of webhooks and services inside the cluster.

Values: https://github.com/cert-manager/cert-manager/blob/v1.21.2/deploy/charts/cert-manager/values.yaml
"""

from __future__ import annotations

from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import (
    ISSUER,
    PRIORITY_CLASS,
    TRUST,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.called_ports import KUBELET
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between

_NAMESPACE: Final = "cert-manager"
_API: Final = "cert-manager.io/v1"


@described
class CertManagerOptions(TypedDict):
    """Options of ``cert-manager``."""

    ca_secret: NotRequired[str]
    """Secret of type ``kubernetes.io/tls`` in ``cert-manager`` with an intermediate CA of your own
    PKI (OpenBao, ACM PCA, an HSM). Default: a root that cert-manager makes and keeps in the
    cluster."""
    ca_years: NotRequired[Annotated[int, Between(1, 20), Default(10)]]
    """Years that the root made here is valid."""


def _check(options: OptionsChecker, _: object) -> None:
    if options.given.get("ca_secret") and options.given.get("ca_years"):
        options.say(
            "ca_years",
            "given with ca_secret, whose certificate has a date of its own; leave one out",
        )


def _values(spec: PlatformSpec) -> dict[str, Values]:
    def image(name: str) -> dict[str, str]:
        return {"repository": spec.repository(name), "tag": spec.tag(name)}

    pods: Values = {"nodeSelector": spec.node_selector, "resources": resources("20m", "128Mi")}
    return {
        "cert-manager": {
            "global": {
                "priorityClassName": PRIORITY_CLASS,
                # Its leases stay with it: kube-system is the cluster's own.
                "leaderElection": {"namespace": _NAMESPACE},
            },
            "crds": {"enabled": True, "keep": True},
            "image": image("cert-manager-controller"),
            "acmesolver": {"image": image("cert-manager-acmesolver")},
            **pods,
            "webhook": {
                **pods,
                "image": image("cert-manager-webhook"),
                "replicaCount": 2,
                "podDisruptionBudget": {
                    "enabled": True,
                    "minAvailable": 1,
                    "unhealthyPodEvictionPolicy": "AlwaysAllow",
                },
            },
            "cainjector": {**pods, "image": image("cert-manager-cainjector")},
            # A hook, which isn't run; the issuer below waits for the webhook instead.
            "startupapicheck": {"enabled": False},
        }
    }


def _issuers(spec: PlatformSpec) -> list[Manifest]:
    options = spec.options("cert-manager")
    secret = options["ca_secret"] or TRUST
    issuer: Manifest = {
        "apiVersion": _API,
        "kind": "ClusterIssuer",
        "metadata": spec.metadata(ISSUER),
        "spec": {"ca": {"secretName": secret}},
    }
    if options["ca_secret"]:
        return [issuer]
    return [
        {
            "apiVersion": _API,
            "kind": "ClusterIssuer",
            "metadata": spec.metadata(f"{ISSUER}-root"),
            "spec": {"selfSigned": {}},
        },
        {
            "apiVersion": _API,
            "kind": "Certificate",
            "metadata": spec.metadata(TRUST, _NAMESPACE),
            "spec": {
                "isCA": True,
                "commonName": f"Falaj {spec.placed.region}",
                "secretName": secret,
                "duration": f"{options['ca_years'] * 8760}h",
                "privateKey": {"algorithm": "ECDSA", "size": 384, "rotationPolicy": "Never"},
                "issuerRef": {"kind": "ClusterIssuer", "name": f"{ISSUER}-root"},
            },
        },
        issuer,
    ]


def certificate(
    spec: PlatformSpec, name: str, namespace: str, hosts: list[str], usages: list[str]
) -> Manifest:
    """A certificate of the private CA, renewed by cert-manager, in a secret of the same name."""
    return {
        "apiVersion": _API,
        "kind": "Certificate",
        "metadata": spec.metadata(name, namespace),
        "spec": {
            "commonName": hosts[0],
            "dnsNames": hosts,
            "secretName": name,
            "duration": "2160h",
            "renewBefore": "720h",
            "usages": usages,
            "privateKey": {"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
            "issuerRef": {"group": "cert-manager.io", "kind": "ClusterIssuer", "name": ISSUER},
        },
    }


CERT_MANAGER: Final = Addon(
    name="cert-manager",
    summary="certificates from a private CA",
    namespaces=(Namespace(_NAMESPACE),),
    releases=(Release("cert-manager", "cert-manager", _NAMESPACE),),
    options=CertManagerOptions,
    check=_check,
    images=lambda spec: (
        "cert-manager-controller",
        "cert-manager-webhook",
        "cert-manager-cainjector",
        "cert-manager-acmesolver",
    ),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(webhooks=(KUBELET,), scrapes=(9402,))},
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/instance": "cert-manager"}, "http-metrics"),),
    after=_issuers,
)
