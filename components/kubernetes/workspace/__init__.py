"""A workspace: JupyterLab for one person of a tenant, with a part of a GPU if wanted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import pulumi

from falaj.components.catalogue.clusters import TRAINING_ENDING
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._placed import check_in_cluster, check_secret_entry
from falaj.components.kubernetes._validation import cidr, is_private, options
from falaj.components.kubernetes.bill_of_materials import resolve_one
from falaj.components.kubernetes.tenant.roles import subject
from falaj.components.kubernetes.training.arguments import Placement
from falaj.components.kubernetes.training_job import checked_flavor, checked_size, checked_spot
from falaj.components.kubernetes.workspace.access import access
from falaj.components.kubernetes.workspace.arguments import (
    IMAGE,
    Mirror,
    PackageMirrorArgs,
    WorkspaceArgs,
    WorkspaceSpec,
)
from falaj.components.kubernetes.workspace.pod import PORT, SESSION, pod
from falaj.components.specification.argument_errors import ArgumentErrors

__all__ = ["PackageMirrorArgs", "Workspace", "WorkspaceArgs", "check", "manifests"]

#: With the ending of its objects' names still a label of DNS.
_NAME: Final = re.compile(r"^[a-z]([a-z0-9-]{0,34}[a-z0-9])?$")
#: What identity providers call people: addresses, ids, ARNs.
_USER: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@:/+=#-]{0,252}$")


def check(name: str, args: WorkspaceArgs) -> WorkspaceSpec:
    """Check the arguments of a `Workspace`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Workspace {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    checked = errors.checked(given, WorkspaceArgs)
    if not _NAME.match(name):
        errors.add("name", name, "1 to 36 of a-z, 0-9 and '-', first a letter, last no '-'")
    placed = check_in_cluster(given, errors)
    user = errors.text(given, "user")
    if user and (user.startswith("system:") or not _USER.match(user)):
        errors.add(
            "user", user, "one person's name as the API server knows it, such as a@acme.example",
            "groups aren't people, and system: is the cluster's own",
        )  # fmt: skip
    secret = errors.text(given, "token_secret")
    check_secret_entry("token_secret", secret, placed, errors)
    flavor = checked_flavor(given, errors)
    size = checked_size(checked, flavor, None, errors)
    spot = checked_spot(checked, placed, flavor, errors)
    mirror = _mirror(given, errors)
    image = ""
    if placed is not None:
        image = resolve_one(placed, IMAGE, given.get("images"), errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return WorkspaceSpec(
        placed=placed,
        name=name,
        namespace=checked["namespace"] or f"{placed.tenant}{TRAINING_ENDING}",
        user=subject("User", user),
        image=image,
        size=size,
        placement=Placement(flavor, spot, None, "required", "none"),
        priority=checked["priority"],
        home_gib=checked["home_gib"],
        storage_class=checked["storage_class"],
        data=checked["data"] or "",
        idle_minutes=checked["idle_minutes"],
        hours=checked["hours"],
        session=checked["session"],
        token_secret=secret,
        secret_store=checked["secret_store"],
        certificate_issuer=checked["certificate_issuer"],
        mirror=mirror,
    )


def _mirror(given: Mapping[str, Any], errors: ArgumentErrors) -> Mirror | None:
    """The argument ``package_mirror``."""
    if given.get("package_mirror") is None:
        return None
    asked = options("package_mirror", given["package_mirror"], PackageMirrorArgs, errors)
    url = str(asked.get("url", ""))
    port = 0
    try:
        parts = urlsplit(url)
        port = parts.port or 443
        usable = parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
        usable = usable and not parts.query and not parts.fragment and " " not in url
    except ValueError:
        usable = False
    if not usable:
        # What stands before an "@" is a password, which isn't repeated.
        errors.add(
            "package_mirror.url",
            "an address with a name in it" if "@" in url else url,
            "https://host/path, without user, password or query",
        )
    listed = asked.get("cidrs")
    ranges = errors.texts("package_mirror.cidrs", listed) if listed is not None else ()
    if listed is not None and not ranges:
        errors.add("package_mirror.cidrs", listed, "at least one range")
    for position, each in enumerate(ranges):
        at = f"package_mirror.cidrs[{position}]"
        found = cidr(at, each, errors)
        if found is not None and not is_private(found):
            errors.add(at, each, "ranges of one's own networks", "the mirror is in the country")
    return Mirror(url, ranges, port)


def home_claim(spec: WorkspaceSpec) -> Manifest:
    """The claim of the person's home."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": spec.metadata(spec.home),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": spec.storage_class,
            "resources": {"requests": {"storage": f"{spec.home_gib}Gi"}},
        },
    }


def manifests(spec: WorkspaceSpec) -> list[Manifest]:
    """The objects, what shuts the doors first."""
    return [*access(spec), home_claim(spec), pod(spec)]


class Workspace(pulumi.ComponentResource):
    """JupyterLab for one person of a tenant, with terminals, a home, and a part of a GPU.

    ::

        Workspace("alice", {
            "distribution": "existing", "region": "abu-dhabi-1", "registry": registry,
            "tenant": "acme", "owner": "ml@acme.example", "data_class": "confidential",
            "cost_center": "ai-42",
            "user": "alice@acme.example", "token_secret": "acme/workspace-alice",
            "flavor": "h200-mig-1g.18gb",
        })

    One pod, which Kueue admits by the tenant's quota. It isn't of a Job, whose pods have names
    that nobody knows beforehand: a role can only name pods by their names, and the one here lets
    the person forward a port of just this pod. Neither is it of a StatefulSet, which starts its
    pods again for ever. When it ends, its quota is free, and nothing starts it again but another
    ``session``.

    The server listens on the pod's loopback interface alone, by TLS 1.3 with a certificate of the
    platform's issuer, and wants the token that External Secrets fetches from the store. The pod
    has no token of the cluster, and an account of its own that no role and no identity of a cloud
    is for. It reaches the package mirror, where one is named, and what the tenant's own policies
    allow.

    It ends unused after ``idle_minutes``. Who has it can write a program that looks like use, so
    that ``hours`` is what holds: a deadline of the pod itself, which the API server lets nobody
    raise. With the default priority it makes room for the tenant's jobs: what is in memory is lost
    then, files stay.

    In production the home stays when the workspace is removed.
    """

    pod: str
    """Name of the pod."""
    url: str
    """Where the person finds it, while the port is forwarded."""
    command: str
    """What forwards the port."""

    def __init__(
        self, name: str, args: WorkspaceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        # The arguments say whose it is and where its token lies, and nothing that is secret.
        super().__init__(token("Workspace"), name, None, opts)
        made = declare(self, name, access(spec))
        kept = spec.placed.environment == "production"
        home = declare(self, name, [home_claim(spec)], retain_on_delete=kept)
        # A pod's specification can't be changed: another session is another pod.
        declare(
            self, name, [pod(spec)],
            depends_on=[*made.values(), *home.values()],
            replace_on_changes=["spec", f'metadata.annotations["{SESSION}"]'],
            delete_before_replace=True,
        )  # fmt: skip
        self.pod = spec.base
        self.url = f"https://{spec.host}:{PORT}"
        self.command = f"kubectl --namespace {spec.namespace} port-forward pod/{spec.base} {PORT}"
        self.register_outputs({"pod": self.pod, "url": self.url, "command": self.command})
