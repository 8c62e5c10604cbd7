"""Controllers that run beside the control plane, as processes: Kueue, JobSet, Kubeflow Trainer.

In a cluster they are pods behind a Service, and cert-manager or they themselves make the
certificates of their webhooks. Here the API server calls them on loopback: `clientConfig.service`
of the vendor's webhook configurations becomes a `url`, with an authority of ours.
"""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.engine.controlplane.certificates import Authority
from falaj.engine.controlplane.processes import LOOPBACK, Files
from falaj.wire.documents import is_mapping

_SELECTABLE_NAMESPACES = {
    "matchExpressions": [
        {
            "key": "kubernetes.io/metadata.name",
            "operator": "NotIn",
            "values": ["kube-system", "kueue-system"],
        }
    ]
}
_JOBSET_PODS = {
    "matchExpressions": [{"key": "jobset.sigs.k8s.io/jobset-name", "operator": "Exists"}]
}
#: Definitions of Kueue whose versions differ: config/components/crd/kustomization.yaml there.
_CONVERTED = frozenset(
    f"{name}.kueue.x-k8s.io"
    for name in ("localqueues", "clusterqueues", "cohorts", "workloads", "multikueueclusters")
)
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


#: Kueue's configuration as the platform's add-on renders it by default, with its feature gates.
#: The engine knows no component: `python -m tests.components.kubernetes.kueue_defaults` writes the
#: file, and a test holds that it is the same.
_KUEUE = Path(__file__).with_name("kueue.json")


@dataclass(frozen=True)
class Controller:
    """One controller as it runs here."""

    name: str
    namespace: str
    account: str
    """Its service account in a cluster; it calls the API server under that name."""
    webhook_port: int
    health_port: int
    status_port: int = 0

    @property
    def user(self) -> str:
        """Its user name."""
        return f"system:serviceaccount:{self.namespace}:{self.account}"

    @property
    def service(self) -> str:
        """The host name that its certificate has in a cluster."""
        return f"{self.name}-webhook-service.{self.namespace}.svc"

    @property
    def webhook_url(self) -> str:
        """Where the API server finds its webhooks."""
        return f"https://{LOOPBACK}:{self.webhook_port}"


def known(ports: list[int]) -> dict[str, Controller]:
    """The controllers that can run, each with two of `ports` (Trainer with three)."""
    kueue, kueue_health, jobset, jobset_health, trainer, trainer_health, status = ports
    return {
        "kueue": Controller(
            "kueue", "kueue-system", "kueue-controller-manager", kueue, kueue_health
        ),
        "jobset": Controller(
            "jobset", "jobset-system", "jobset-controller-manager", jobset, jobset_health
        ),
        "trainer": Controller(
            "trainer", "kubeflow-system", "kubeflow-trainer-controller-manager",
            trainer, trainer_health, status,
        ),
    }  # fmt: skip


PORTS = 7
"""How many ports `known` takes."""


def platforms(name: str) -> dict[str, Any]:
    """What the platform gives a controller's configuration; empty where it leaves all as it is."""
    if name != "kueue":
        return {}
    found: dict[str, Any] = json.loads(_KUEUE.read_text(encoding="utf-8"))
    return found


def configuration(
    controller: Controller, given: Mapping[str, Any], certificates: Path
) -> dict[str, Any]:
    """The controller's configuration file: what was `given`, and what loopback needs on top.

    `certificates` is the folder with the webhooks' `tls.crt` and `tls.key`.
    """
    needed: dict[str, Any] = {
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{controller.health_port}"},
        # Served nowhere: nobody scrapes a simulation.
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "host": LOOPBACK,
            "port": controller.webhook_port,
            "certDir": str(certificates),
        },
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
    }
    if controller.name == "kueue":
        # Kueue without its own certificates reads /etc/kueue/metrics/certs, which only root can
        # make. With them it takes those of its Secret when they are good, which ours are.
        needed |= {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": controller.namespace,
            # It would be an API server of its own behind the aggregator.
            "featureGates": {"VisibilityOnDemand": False},
            "internalCertManagement": {
                "enable": True,
                "webhookServiceName": "kueue-webhook-service",
                "webhookSecretName": "kueue-webhook-server-cert",
            },
        }
    elif controller.name == "jobset":
        needed |= {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "internalCertManagement": {"enable": False},
        }
    else:
        needed |= {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "certManagement": {"enable": False},
            "statusServer": {"port": controller.status_port},
        }
        del needed["webhook"]["certDir"]
    return merged(given, needed)


def merged(given: Mapping[str, Any], needed: Mapping[str, Any]) -> dict[str, Any]:
    """`given` with `needed` written over it, key by key; lists are replaced whole."""
    result: dict[str, Any] = copy.deepcopy(dict(given))
    for key, value in needed.items():
        below = result.get(key)
        if is_mapping(value) and is_mapping(below):
            result[key] = merged(below, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def command(
    controller: Controller, binary: Path, configuration_file: Path, kubeconfig: Path
) -> list[str]:
    """The controller's command line."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--config={configuration_file}",
        "--zap-log-level=info",
    ]


def environment(controller: Controller, certificates: Path) -> dict[str, str]:
    """What it needs beside its configuration.

    Trainer has no setting for the folder of its certificates: it is
    `$TMPDIR/k8s-webhook-server/serving-certs`, controller-runtime's default.
    """
    return {"TMPDIR": str(certificates.parents[1])} if controller.name == "trainer" else {}


def certificates_folder(controller: Controller, files: Files) -> Path:
    """Where the webhooks' certificate and key are."""
    return files.certificates / controller.name / "k8s-webhook-server" / "serving-certs"


def certificates(controller: Controller, files: Files) -> dict[str, Any]:
    """Make the webhooks' authority and certificate; return the Secret of them."""
    folder = certificates_folder(controller, files)
    # Kueue recognises its own authority by this name.
    authority = Authority(folder, f"{controller.name}-ca", rsa_key=True)
    pair = authority.server("tls", (controller.service, LOOPBACK))

    def encoded(path: Path) -> str:
        return base64.b64encode(path.read_bytes()).decode()

    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{controller.name}-webhook-server-cert",
            "namespace": controller.namespace,
        },
        "data": {
            "ca.crt": encoded(authority.certificate),
            "ca.key": encoded(authority.signing.key),
            "tls.crt": encoded(pair.certificate),
            "tls.key": encoded(pair.key),
        },
    }


def localised(
    controller: Controller, documents: list[dict[str, Any]], authority: bytes
) -> list[dict[str, Any]]:
    """The vendor's definitions and webhook configurations as they work on loopback.

    The names and selectors are those that the vendor's own kustomisation adds.
    """
    bundle = base64.b64encode(authority).decode()
    result: list[dict[str, Any]] = []
    for document in copy.deepcopy(documents):
        if document["kind"] in KINDS:
            document["metadata"]["name"] = f"{controller.name}-{document['metadata']['name']}"
            for webhook in document["webhooks"]:
                path = webhook["clientConfig"].pop("service")["path"]
                webhook["clientConfig"] = {
                    "url": f"{controller.webhook_url}{path}", "caBundle": bundle,
                }  # fmt: skip
                _select(controller.name, webhook)
        elif document["metadata"]["name"] in _CONVERTED:
            document["spec"]["conversion"] = {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {
                        "url": f"{controller.webhook_url}/convert",
                        "caBundle": bundle,
                    },
                    "conversionReviewVersions": ["v1"],
                },
            }
        result.append(document)
    return result


def _select(name: str, webhook: dict[str, Any]) -> None:
    groups = {group for rule in webhook["rules"] for group in rule["apiGroups"]}
    if name == "kueue" and "kueue.x-k8s.io" not in groups:
        webhook["namespaceSelector"] = _SELECTABLE_NAMESPACES
    if name == "jobset" and groups == {""}:
        webhook["objectSelector"] = _JOBSET_PODS
