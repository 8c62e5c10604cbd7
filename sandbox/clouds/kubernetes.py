"""What a cluster would say of an object, and which cluster a kubeconfig means."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import yaml

from falaj.sandbox.clouds.model import GenericModel, Problem, Properties, World
from falaj.sandbox.clouds.vendor import MADE_AT, RELEASE
from falaj.wire import Unknown, has_unknown
from falaj.wire.documents import is_mapping, is_sequence, mapping


def cluster_of(config: Mapping[str, Any]) -> str:
    """A text that tells one cluster from another; empty for the one that nobody names.

    It is the server where a kubeconfig is given as a text: credentials in it may change. Of a file
    only the path and the context are known, for files of real clusters are never read here.
    """
    given, context = config.get("kubeconfig"), config.get("context")
    named = str(context) if isinstance(context, str) else ""
    if not isinstance(given, str) or not given.strip():
        return named
    document = _read(given)
    if document is None:
        return f"{given}#{named}" if named else given
    contexts = _named(document.get("contexts"), "context")
    chosen = contexts.get(named or str(document.get("current-context")), {})
    wanted = str(config.get("cluster") or chosen.get("cluster") or "")
    server = _named(document.get("clusters"), "cluster").get(wanted, {}).get("server")
    return str(server or wanted or named)


def _read(text: str) -> Mapping[str, Any] | None:
    """The document; None for what is a path."""
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return found if is_mapping(found) else None


def _named(entries: Any, key: str) -> dict[str, Mapping[str, Any]]:
    """Entries of a kubeconfig by their names."""
    found: dict[str, Mapping[str, Any]] = {}
    for each in entries if is_sequence(entries) else ():
        if is_mapping(each) and is_mapping(each.get(key)):
            found[str(each.get("name"))] = each[key]
    return found


# Kinds without a namespace; https://kubernetes.io/docs/reference/kubernetes-api/
_CLUSTER_WIDE: Final = frozenset(
    {
        "APIService",
        "CertificateSigningRequest",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrustBundle",
        "CSIDriver",
        "CSINode",
        "CustomResourceDefinition",
        "DeviceClass",
        "FlowSchema",
        "IngressClass",
        "IPAddress",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "PriorityLevelConfiguration",
        "ResourceSlice",
        "RuntimeClass",
        "ServiceCIDR",
        "StorageClass",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration",
        "VolumeAttachment",
        "VolumeAttributesClass",
    }
)

# Fields that the vendor's provider replaces a resource for, because the API server holds them
# immutable: pulumi/pulumi-kubernetes, provider/pkg/provider/diff.go.
_REPLACED: Final = {
    "ConfigMap": ("binaryData", "data"),
    "Secret": ("type", "stringData", "data"),
    "Deployment": ("spec.selector",),
    "DaemonSet": ("spec.selector",),
    "StatefulSet": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "PersistentVolumeClaim": ("spec",),
    "Pod": ("spec",),
    "ResourceQuota": ("spec.scopes",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "StorageClass": ("parameters", "provisioner"),
}

# RFC 1123 subdomain; https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LIMIT: Final = 253
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# Names of RBAC objects may be any path segment, such as system:node.
_FREE_NAMES: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})

# Resources of the vendor's provider that are no objects of an API server.
_NO_OBJECTS: Final = frozenset({RELEASE})


class KubernetesModel(GenericModel):
    """Any cluster: objects have names, most a namespace, and both never change.

    Which namespaces a cluster has besides a stack's own isn't known, so none is missed; and the
    API server itself takes a namespace's objects with it.
    """

    def __init__(self) -> None:
        super().__init__("kubernetes")

    def defaults(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> Properties:
        """A name from the resource's own with a suffix from its URN, and the namespace."""
        metadata = _metadata(inputs)
        if isinstance(metadata, Unknown):
            return {}
        if token in _NO_OBJECTS:
            return {"name": _autoname(name, urn)} if inputs.get("name") is None else {}
        filled: dict[str, Any] = {}
        if metadata.get("name") is None and metadata.get("generateName") is None:
            filled["name"] = _autoname(name, urn)
        if metadata.get("namespace") is None and has_namespace(token):
            filled["namespace"] = config.get("namespace") or "default"
        return {"metadata": filled} if filled else {}

    def problems(self, token: str, inputs: Properties, config: Properties) -> list[Problem]:
        """Names and label values that the API server refuses."""
        del config
        metadata = _metadata(inputs)
        if isinstance(metadata, Unknown):
            return []
        found: list[Problem] = []
        name = metadata.get("name")
        if isinstance(name, str) and _kind(token) not in _FREE_NAMES and not _is_name(name):
            found.append(
                Problem(
                    "metadata.name",
                    f"{name!r} is no name of an object; allowed: up to {_NAME_LIMIT} lower case "
                    "letters, digits, '-' and '.', starting and ending with a letter or digit",
                )
            )
        labels = metadata.get("labels")
        for key, value in labels.items() if is_mapping(labels) else ():
            if isinstance(value, str) and not _LABEL_VALUE.fullmatch(value):
                found.append(
                    Problem(
                        f'metadata.labels["{key}"]',
                        f"{value!r} is no value of a label; allowed: up to 63 letters, digits, "
                        "'-', '_' and '.', starting and ending with a letter or digit",
                    )
                )
        return found

    def identity(
        self, token: str, name: str, inputs: Properties, config: Properties, urn: str
    ) -> str:
        """``namespace/name``, or the name alone."""
        if token in _NO_OBJECTS:
            namespace = inputs.get("namespace") or config.get("namespace") or "default"
            return f"{namespace}/{inputs.get('name')}"
        metadata = _metadata(inputs)
        given = mapping(metadata)
        digest = hashlib.sha256(urn.encode()).hexdigest()[:5]
        own = given.get("name") or f"{given.get('generateName') or name}{digest}"
        namespace = given.get("namespace")
        return f"{namespace}/{own}" if namespace else str(own)

    def outputs(
        self,
        token: str,
        id: str,
        inputs: Properties,
        config: Properties,
        world: World,
    ) -> Properties:
        """The object with what the API server adds: to its metadata, and a service's address."""
        del config, world
        if token in _NO_OBJECTS:
            namespace, _, name = id.partition("/")
            # pulumi-kubernetes, provider/pkg/provider/helm_release.go, setReleaseAttributes
            status = {"name": name, "namespace": namespace, "revision": 1, "status": "deployed"}
            return {**inputs, "status": status}
        metadata = _metadata(inputs)
        given = {} if isinstance(metadata, Unknown) else dict(metadata)
        content = json.dumps(inputs, sort_keys=True, default=repr)
        revision = int(hashlib.sha256(content.encode()).hexdigest()[:6], 16)
        found: dict[str, Any] = {
            **inputs,
            "metadata": {
                **given,
                "name": id.rpartition("/")[2],
                "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{token}/{id}")),
                "resourceVersion": str(revision + 1),
                "generation": 1,
                "creationTimestamp": MADE_AT,
            },
        }
        if _kind(token) == "Namespace":
            found["status"] = {"phase": "Active"}
        if _kind(token) == "Service":
            found["spec"] = _service(inputs.get("spec"), id)
        return found

    def is_shared(self, token: str) -> bool:
        """Nothing is, as far as is known here."""
        del token
        return False

    def replacements(self, token: str) -> frozenset[str]:
        """The name, the namespace, and what the kind holds immutable."""
        own = _REPLACED.get(_kind(token), ())
        return frozenset({"apiVersion", "kind", "metadata.name", "metadata.namespace", *own})

    def invoke(self, token: str, args: Properties, config: Properties, world: World) -> Properties:
        """No query is known. Raises LookupError."""
        del args, config, world
        raise LookupError(
            f"{token} needs a program of its own (helm, kustomize) or a cluster; the sandbox has "
            "neither: declare the objects themselves"
        )


MODEL: Final = KubernetesModel()


def _autoname(name: str, urn: str) -> str:
    digest = hashlib.sha256(urn.encode()).hexdigest()[:8]
    base = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "object"
    return f"{base[: 62 - len(digest)]}-{digest}"


def _kind(token: str) -> str:
    return token.rpartition(":")[2].removesuffix("Patch")


def has_namespace(token: str) -> bool:
    """Whether a kind lives in a namespace; of custom kinds nothing is known, they name it."""
    # Groups of the API server itself are plain words or end in k8s.io.
    group = token.split(":")[1].split("/", maxsplit=1)[0]
    is_builtin = "." not in group or group.endswith(".k8s.io")
    return is_builtin and _kind(token) not in _CLUSTER_WIDE


def _metadata(inputs: Properties) -> Mapping[str, Any] | Unknown:
    metadata = inputs.get("metadata")
    if isinstance(metadata, Unknown):
        return metadata
    return mapping(metadata)


def _is_name(text: str) -> bool:
    return len(text) <= _NAME_LIMIT and _NAME.fullmatch(text) is not None


def _service(given: Any, id: str) -> dict[str, Any]:
    """A service's specification with an address in the usual range, 10.96.0.0/12."""
    spec = dict(given) if is_mapping(given) and not has_unknown(given) else {}
    number = int(hashlib.sha256(id.encode()).hexdigest()[:5], 16)
    address = f"10.{96 + number // 65536}.{number // 256 % 256}.{number % 256}"
    if spec.get("type") == "ExternalName":
        return spec
    return {"type": "ClusterIP", "clusterIP": address, **spec}
