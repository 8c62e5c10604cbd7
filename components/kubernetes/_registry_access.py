"""A pod that signs and sends to the registry: its key ring, its login, and whom it reaches."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NotRequired, Protocol, TypedDict

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES
from falaj.components.kubernetes._key_ring import packed_secret
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import PROTECTED, InCluster, check_secret_entry
from falaj.components.kubernetes._secrets import external_secret
from falaj.components.kubernetes._validation import private_ranges
from falaj.components.specification.argument_errors import ArgumentErrors

_PEM: Final = re.compile(
    r"\s*(-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+"
)
_MOST_PEM: Final = 64 << 10
_CONFIG: Final = "config.json"
_LOGIN: Final = "/run/falaj/registry"
_AUTHORITY: Final = "registry.pem"
TRUSTED: Final = "/run/falaj/authority"
"""Where a pod has certificates of whom it asks outside of the cluster."""


class RegistryAccessArgs(TypedDict):
    """Who signs, and how the registry is reached."""

    key_secret: str
    """Entry of the secret store with a key ring and the key that signs: the text that
    ``python -m falaj.workloads.registry keyring pack --signs`` writes. For a training job it is of
    the job's own ring. Only the container that signs has it."""
    registry_cidrs: list[str]
    """Addresses of the registry, private ranges: beside them the pod reaches nothing outside of
    its namespace but the resolver."""
    registry_secret: NotRequired[str]
    """Entry of the secret store with logins for the registry, in the form of
    ``~/.docker/config.json``. Default: the registry asks for none."""
    registry_authority: NotRequired[str]
    """Certificates (PEM) of who signed the registry's. Default: those that the image trusts."""


@dataclass(frozen=True)
class RegistryAccess:
    """The arguments of `RegistryAccessArgs`, checked."""

    signing_entry: str
    store: str
    cidrs: tuple[str, ...]
    repositories: str
    """Folder of all models in the registry: host and path."""
    login_entry: str
    """Empty: the registry asks for no login."""
    authority: str
    """PEM; empty for those that the image trusts."""


def checked(
    at: str, asked: Mapping[str, Any], placed: InCluster, store: str, errors: ArgumentErrors
) -> RegistryAccess:
    """The arguments of `RegistryAccessArgs` among those at a path.

    Args:
        at: the path.
        asked: the arguments there.
        placed: whose pod it is.
        store: the `ClusterSecretStore`.
        errors: gets what is wrong; what is missing was told before.
    """
    entries = {
        key: _entry(f"{at}.{key}", asked.get(key), placed, errors)
        for key in ("key_secret", "registry_secret")
    }
    return RegistryAccess(
        entries["key_secret"], store,
        private_ranges(f"{at}.registry_cidrs", asked.get("registry_cidrs", ()), errors),
        f"{placed.registry}/{MODEL_REPOSITORIES}", entries["registry_secret"],
        certificates(f"{at}.registry_authority", asked.get("registry_authority"), errors),
    )  # fmt: skip


def _entry(at: str, value: object, placed: InCluster, errors: ArgumentErrors) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        errors.add(at, value, "text that is not empty")
        return ""
    check_secret_entry(at, value, placed, errors)
    return value


def certificates(at: str, value: object, errors: ArgumentErrors) -> str:
    """Certificates in PEM form and nothing else; empty where none are given, or others.

    Args:
        at: the argument's path.
        value: what was given.
        errors: gets what is wrong.
    """
    if value is None:
        return ""
    # Nothing but certificates: a private key that was put in by mistake isn't shown to anybody.
    if isinstance(value, str) and len(value) <= _MOST_PEM and _PEM.fullmatch(value):
        return value
    errors.say(
        at,
        f"has to be certificates in PEM form and nothing else, at most {_MOST_PEM} characters",
    )
    return ""


class About(Protocol):
    """Makes the metadata of an object that stands beside the pod."""

    def __call__(
        self, ending: str, /, *, labels: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Of the object whose name is the pod's owner's with an ending."""
        ...


def secrets(access: RegistryAccess, about: About) -> list[Manifest]:
    """The packed ring, the login and the registry's authority, which `give` mounts."""
    found: list[Manifest] = [
        packed_secret(about("-keys", labels=PROTECTED), access.store, access.signing_entry)
    ]
    if access.login_entry:
        secret = about("-registry", labels=PROTECTED)
        found.append(external_secret(secret, access.store, access.login_entry, _CONFIG))
    if access.authority:
        found.append({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": about("-authority", labels=PROTECTED),
            "data": {_AUTHORITY: access.authority},
        })  # fmt: skip
    return found


def egress(access: RegistryAccess) -> dict[str, Any]:
    """The way out to the registry."""
    port = access.repositories.partition("/")[0].rpartition(":")[2]
    return {
        "to": [{"ipBlock": {"cidr": each}} for each in access.cidrs],
        "ports": [{"port": int(port) if port.isdecimal() else 443, "protocol": "TCP"}],
    }


def give(
    access: RegistryAccess, name: str, spec: dict[str, Any], container: dict[str, Any]
) -> None:
    """Mount login and authority for one container of a pod.

    Args:
        access: the registry's.
        name: what the names of `secrets` begin with.
        spec: the pod's specification.
        container: one of it, which gets mounts, and a list of variables of its own.
    """
    if access.login_entry:
        secret = {"secretName": f"{name}-registry", "defaultMode": 0o440}
        _add(spec, container, "registry", {"secret": secret}, _LOGIN)
    if access.authority:
        source = {"configMap": {"name": f"{name}-authority"}}
        _add(spec, container, "authority", source, TRUSTED)
        trusted = {"name": "SSL_CERT_FILE", "value": f"{TRUSTED}/{_AUTHORITY}"}
        container["env"] = [*container["env"], trusted]


def _add(
    spec: dict[str, Any], container: dict[str, Any], name: str, source: dict[str, Any], at: str
) -> None:
    spec["volumes"].append({"name": name, **source})
    container["volumeMounts"].append({"name": name, "mountPath": at, "readOnly": True})


def options(access: RegistryAccess) -> list[str]:
    """Options of the workloads' commands that send to the registry."""
    login = ["--login", f"{_LOGIN}/{_CONFIG}"] if access.login_entry else []
    return ["--to", access.repositories, *login]
