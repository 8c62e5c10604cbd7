"""Registers Kubernetes objects as resources: what an API server takes, in an order that it takes.

Components render plain manifests first, without an engine, so that the same objects can be read,
compared, validated and applied anywhere; this turns them into resources. A Helm chart is one, too:
the vendor's provider renders it, and each object is one of its own. The SDK has a class for it;
its import takes longer than all components together, and settings are read where no SDK of
Kubernetes is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any, Final, TypeAlias

import pulumi

from falaj.components.kubernetes._placed import InCluster

Manifest: TypeAlias = Mapping[str, Any]
"""A Kubernetes object: ``apiVersion``, ``kind``, ``metadata`` and what the kind has."""

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
GATEWAY_API: Final = "gateway.networking.k8s.io/v1"
_SDK: Final = "pulumi-kubernetes"
#: The resolver's whole configuration, where clusters keep it in one object.
_WHOLE_RESOLVER: Final = "ConfigMap/kube-system/coredns"
#: A patch that goes takes its keys with it, and of this one they are all that the object has.
_KEPT: Final[Mapping[str, Any]] = {"retain_on_delete": True}


def token(name: str) -> str:
    """The type token of a component."""
    return f"falaj-kubernetes:index:{name}"


def key_of(manifest: Manifest) -> str:
    """``Kind/namespace/name``, or ``Kind/name`` where there is no namespace."""
    about = manifest["metadata"]
    parts = (manifest["kind"], about.get("namespace"), about["name"])
    return "/".join(str(part) for part in parts if part)


def type_of(manifest: Manifest) -> str:
    """The type token of the vendor's provider, which knows objects of every kind by it.

    The core group, which has no name in manifests, is written out. What the cluster makes by
    itself, the default service account of each namespace and the resolver's configuration, is
    patched: it may be there already.
    """
    api_version, kind = str(manifest["apiVersion"]), str(manifest["kind"])
    about = manifest["metadata"]
    if (kind, about["name"]) == ("ServiceAccount", "default") or (
        kind == "ConfigMap" and about.get("namespace") == "kube-system"
    ):
        kind += "Patch"
    return f"kubernetes:{api_version if '/' in api_version else 'core/' + api_version}:{kind}"


def declare(
    parent: pulumi.Resource,
    name: str,
    manifests: Iterable[Manifest],
    *,
    depends_on: Sequence[pulumi.Resource] = (),
    **options: Any,
) -> dict[str, pulumi.CustomResource]:
    """Register objects below a component.

    Args:
        parent: the component; its provider is used.
        name: the component's name; resources are called after it and the object.
        manifests: the objects. Their names, namespaces and kinds are plain values; other values
            may be outputs.
        depends_on: what all of them wait for.
        options: further options of every resource.

    Returns:
        The resources by `key_of`. Objects wait for the namespace they are in, custom ones for
        their definition, where that is among ``manifests``.
    """
    listed = sorted(manifests, key=_rank)
    made: dict[str, pulumi.CustomResource] = {}
    definitions: dict[tuple[str, str], str] = {}
    for manifest in listed:
        key = key_of(manifest)
        if key in made:
            raise ValueError(f"{key} is declared twice by {name}")
        waits = [*depends_on]
        namespace = made.get(f"Namespace/{manifest['metadata'].get('namespace')}")
        group = str(manifest["apiVersion"]).partition("/")[0]
        definition = definitions.get((group, str(manifest["kind"])))
        waits += [namespace] if namespace else []
        waits += [made[definition]] if definition else []
        made[key] = pulumi.CustomResource(
            type_of(manifest),
            f"{name}-{key.lower().replace('/', '-')}",
            dict(manifest),
            pulumi.ResourceOptions(
                parent=parent,
                depends_on=waits,
                version=sdk_version(),
                **({**options, **_KEPT} if key == _WHOLE_RESOLVER else options),
            ),
        )
        if manifest["kind"] == "CustomResourceDefinition":
            spec = manifest["spec"]
            definitions[str(spec["group"]), str(spec["names"]["kind"])] = key
    return made


def _rank(manifest: Manifest) -> int:
    """Definitions first, then namespaces, then what others refer to by name."""
    order = (
        "CustomResourceDefinition", "Namespace", "PriorityClass", "ServiceAccount", "Secret",
        "ConfigMap",
    )  # fmt: skip
    kind = str(manifest["kind"])
    return order.index(kind) if kind in order else len(order)


@cache
def sdk_version() -> str:
    """Version of the SDK, which names the provider's: resources without it take any provider."""
    return version(_SDK)


def format_number(value: float) -> str:
    """A number as a manifest writes it: without a fraction where it has none."""
    return f"{value:g}" if value < 1e6 else str(round(value))


def metadata(
    placed: InCluster,
    component: str,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``metadata`` of an object.

    Args:
        placed: whom it is for.
        component: name of the component that makes it.
        name: the object's own name.
        namespace: where it is; empty for objects of the whole cluster.
        labels: beside those that all objects have.
        annotations: likewise.
    """
    found: dict[str, Any] = {"name": name}
    if namespace:
        found["namespace"] = namespace
    found["labels"] = {**placed.labels(component), **(labels or {})}
    found["annotations"] = {**placed.annotations(), **(annotations or {})}
    return found


class Chart(pulumi.ComponentResource):
    """``kubernetes:helm.sh/v4:Chart``; hooks of the chart are not run."""

    def __init__(
        self,
        resource_name: str,
        *,
        chart: str,
        version: str,
        name: str,
        namespace: str,
        values: Mapping[str, Any],
        opts: pulumi.ResourceOptions,
    ) -> None:
        """Register the chart.

        Args:
            resource_name: its name in the program.
            chart: ``oci://`` reference without version.
            version: the chart's.
            name: the release's name.
            namespace: where its objects are made.
            values: above the chart's own.
            opts: options of the resource.
        """
        super().__init__(
            "kubernetes:helm.sh/v4:Chart",
            resource_name,
            {
                "chart": chart,
                "version": version,
                "name": name,
                "namespace": namespace,
                "values": dict(values),
                "resources": None,
            },
            pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(version=sdk_version())),
            remote=True,
        )


def admission_policy(about: Mapping[str, Any], spec: Mapping[str, Any]) -> list[Manifest]:
    """A ValidatingAdmissionPolicy that refuses where it can't be asked, and its binding, which
    denies and writes into the audit log.

    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/

    Args:
        about: metadata of both.
        spec: what it matches and validates.
    """
    api = "admissionregistration.k8s.io/v1"
    return [
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": dict(about),
            "spec": {"failurePolicy": "Fail", **spec},
        },
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": dict(about),
            "spec": {"policyName": about["name"], "validationActions": ["Deny", "Audit"]},
        },
    ]
