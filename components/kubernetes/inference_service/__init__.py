"""A packaged model served in a cluster: versions, shares, scaling, and who may call it."""

import pulumi

from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    CallerArgs,
    HoursArgs,
    InferenceServiceArgs,
    InferenceServiceSpec,
    ModelVersionArgs,
    OverflowArgs,
)
from falaj.components.kubernetes.inference_service.checks import check
from falaj.components.kubernetes.inference_service.deployment import deployment
from falaj.components.kubernetes.inference_service.network import isolation, routing
from falaj.components.kubernetes.inference_service.scaling import scaling
from falaj.components.kubernetes.inference_service.secrets import secrets
from falaj.components.specification.property_names import engine_inputs

__all__ = [
    "CallerArgs",
    "HoursArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "ModelVersionArgs",
    "OverflowArgs",
    "check",
    "manifests",
]


class InferenceService(pulumi.ComponentResource):
    """Serves a signed, encrypted model package to those who may call it.

    ::

        InferenceService("credit-risk", {
            "distribution": "eks", "region": "me-central-1", "registry": "registry.acme.example",
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "confidential",
            "cost_center": "ai-42", "acknowledge_degraded": "2026-04-30",
            "model": "credit-risk", "package_name": "models/credit-risk",
            "versions": [
                {"version": 7, "weight": 90, "package_digest": "sha256:…"},
                {"version": 8, "weight": 10, "package_digest": "sha256:…", "header": "next"},
            ],
            "key_secret": "acme/model-keys", "token_issuer": "https://id.acme.example",
            "callers": [{"namespace": "acme-apps", "service_account": "scoring"}],
        })

    For each version a `Deployment` and a `Service` that keep their name for good, a KEDA
    `ScaledObject` and a `PodDisruptionBudget`; for all of them an `HTTPRoute` with the shares and
    headers, certificates, the key ring through External Secrets, a `NetworkPolicy` that lets in
    only the gateway, Prometheus and the named callers, and in the mesh strict mutual TLS with an
    `AuthorizationPolicy` by identity. A rollback is the weights of before.

    A replica checks the package's signature and every byte before it starts. The server opens the
    model in its own memory; in the GPU tier it is opened into a memory file system that it shares
    with Triton, which listens on the loopback interface only, behind Falaj's server.
    """

    url: str
    """Address of the leading version within the cluster."""
    namespace: str
    """Namespace of the replicas."""

    def __init__(
        self, name: str, args: InferenceServiceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("InferenceService"), name, engine_inputs(args), opts)
        declare(self, name, manifests(spec))
        self.url = f"https://{spec.host}:{PORT}"
        self.namespace = spec.namespace
        self.register_outputs({"url": self.url, "namespace": self.namespace})


def manifests(spec: InferenceServiceSpec) -> list[Manifest]:
    """The objects, what shuts the doors first."""
    return [
        *isolation(spec),
        *secrets(spec),
        *(deployment(spec, version) for version in spec.versions),
        *routing(spec),
        *scaling(spec),
    ]
