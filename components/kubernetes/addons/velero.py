"""Velero: backups of the cluster's objects, to a bucket in the country.

Values: https://github.com/vmware-tanzu/helm-charts/blob/velero-12.1.0/charts/velero/values.yaml
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components import catalogue
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import CLOUDS, InCluster
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, USER, unprivileged
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons import restore_rehearsal
from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.kubernetes.addons.restore_rehearsal import RehearsalOptions
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import HTTPS, SCHEDULE, Between

_NAMESPACE: Final = restore_rehearsal.VELERO.name
_SCHEDULE: Final = "velero-daily"
"""The schedule's object: the chart puts its release's name before that of ``schedules``."""
#: Where the key of a site's own store is mounted.
_KEYS: Final = "/keys"
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "eks": ("bucket", "key"),
    "aks": ("bucket", "storage_account", "resource_group", "subscription", "client_id"),
    "existing": ("bucket", "endpoint", "credentials_secret", "key_secret"),
}


@described
class VeleroOptions(TypedDict):
    """Options of ``velero``."""

    bucket: NotRequired[str]
    """Bucket, or blob container on AKS. Needed."""
    region: NotRequired[str]
    """Region of the bucket; one in the country. Default: the cluster's."""
    key: NotRequired[str]
    """ARN of the KMS key that backups are encrypted with. Needed on EKS; on AKS the storage
    account has the customer's key, on an ``existing`` cluster the store."""
    storage_account: NotRequired[str]
    """Storage account. Needed on AKS."""
    resource_group: NotRequired[str]
    """Its resource group. Needed on AKS."""
    subscription: NotRequired[str]
    """Id of its subscription. Needed on AKS."""
    client_id: NotRequired[str]
    """Client id of the managed identity. Needed on AKS; on EKS a Pod Identity association binds
    the role to the service account ``velero``."""
    endpoint: NotRequired[Annotated[str, HTTPS]]
    """Address of an S3 store in the country. Needed on an ``existing`` cluster."""
    credentials_secret: NotRequired[str]
    """Secret in ``velero`` whose entry ``cloud`` holds the store's credentials. Needed there,
    too."""
    key_secret: NotRequired[str]
    """Secret in ``velero`` whose entry ``key`` holds the 32 bytes that backups are encrypted with
    (SSE-C): the store never keeps them. Needed there, too; keep a copy outside of the cluster."""
    schedule: NotRequired[Annotated[str, SCHEDULE, Default("0 22 * * *")]]
    """When, as a cron expression in UTC; without it at 02:00 in the Emirates."""
    keep_days: NotRequired[Annotated[int, Between(1, 3650), Default(30)]]
    """Days that a backup is kept."""
    recovery_point_hours: NotRequired[Annotated[int, Between(1, 744), Default(30)]]
    """Hours of changes that may be lost, the recovery point objective: an alert fires, and a
    rehearsal fails, when the newest whole backup is older."""
    rehearsal: NotRequired[RehearsalOptions]
    """Restores the newest backup regularly beside its origin, looks at it and throws it away;
    ``{}`` takes all defaults. Default: none, as it runs the image ``falaj-inference``, which is
    built by oneself."""


def _check(options: OptionsChecker, placed: InCluster) -> None:
    needed = _NEEDED[placed.distribution]
    for option in needed:
        options.needed(option, f"on {placed.distribution}")
    elsewhere = {each for others in _NEEDED.values() for each in others}.difference(needed)
    for option in VeleroOptions.__annotations__:
        if option in elsewhere or (option == "region" and placed.distribution == "existing"):
            options.foreign(option, placed.distribution)
    if (rehearsal := options.nested("rehearsal", RehearsalOptions)) is not None:
        restore_rehearsal.check(rehearsal)
    _check_place(options, placed)


def _check_place(options: OptionsChecker, placed: InCluster) -> None:
    cloud = CLOUDS.get(placed.distribution)
    if cloud is None:
        return
    region = str(options.given.get("region") or placed.region)
    try:
        catalogue.place(cloud, region)
    except catalogue.CatalogueError as error:
        options.say("region", str(error))
    key = str(options.given.get("key") or "")
    parts = key.split(":")
    if key and (len(parts) < 6 or parts[2] != "kms" or parts[3] != region):
        options.say(
            "key", f"given {key!r}; allowed: the ARN of a KMS key in {region}, the bucket's region"
        )


def _location(spec: PlatformSpec) -> dict[str, Any]:
    options = spec.options("velero")
    region = options["region"] or spec.placed.region
    if spec.placed.distribution == "aks":
        provider, config = "azure", {
            "storageAccount": options["storage_account"],
            "resourceGroup": options["resource_group"],
            "subscriptionId": options["subscription"],
            "useAAD": "true",
            "storageAccountURI": f"https://{options['storage_account']}.blob.core.windows.net",
        }  # fmt: skip
    elif spec.placed.distribution == "eks":
        provider, config = "aws", {"region": region, "kmsKeyId": options["key"]}
    else:
        provider, config = "aws", {
            "region": spec.placed.region,
            "s3Url": options["endpoint"],
            "s3ForcePathStyle": "true",
            "customerKeyEncryptionFile": f"{_KEYS}/key",
        }  # fmt: skip
    return {
        "name": "default",
        "default": True,
        "provider": provider,
        "bucket": options["bucket"],
        "prefix": spec.name,
        "config": config,
    }


def _plugin(spec: PlatformSpec) -> str:
    return f"velero-plugin-for-{'azure' if spec.placed.distribution == 'aks' else 'aws'}"


def _values(spec: PlatformSpec) -> dict[str, Values]:
    options = spec.options("velero")
    account: Values = {"create": True, "name": "velero"}
    secret, key = options["credentials_secret"], options["key_secret"]
    keys: Values = {
        "extraVolumes": [{"name": "keys", "secret": {"secretName": key, "defaultMode": 0o440}}],
        "extraVolumeMounts": [{"name": "keys", "mountPath": _KEYS, "readOnly": True}],
    }
    labels: Values = {}
    if spec.placed.distribution == "aks":
        account["annotations"] = {"azure.workload.identity/client-id": options["client_id"]}
        account["labels"] = labels = {"azure.workload.identity/use": "true"}
    plugin = {
        "name": _plugin(spec),
        "image": spec.images[_plugin(spec)],
        "imagePullPolicy": "IfNotPresent",
        "securityContext": unprivileged(),
        "resources": resources("10m", "128Mi"),
        "volumeMounts": [{"name": "plugins", "mountPath": "/target"}],
    }
    return {
        "velero": {
            "image": {"repository": spec.repository("velero"), "tag": spec.tag("velero")},
            "initContainers": [plugin],
            "podLabels": labels,
            "nodeSelector": spec.node_selector,
            "priorityClassName": PRIORITY_CLASS,
            "resources": resources("200m", "1Gi"),
            "podSecurityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containerSecurityContext": unprivileged(),
            **(keys if key else {}),
            # Hooks, which aren't run; their image is of a vendor that pins no versions any more.
            "upgradeCRDs": False,
            "cleanUpCRDs": False,
            "serviceAccount": {"server": account},
            "credentials": {
                "useSecret": bool(secret),
                **({"existingSecret": secret} if secret else {}),
            },
            "configuration": {
                "backupStorageLocation": [_location(spec)],
                "volumeSnapshotLocation": [],
                "defaultBackupTTL": f"{options['keep_days'] * 24}h",
            },
            "backupsEnabled": True,
            # Volumes hold checkpoints and caches, which their own file systems back up.
            "snapshotsEnabled": False,
            "deployNodeAgent": False,
            "schedules": {
                "daily": {
                    "schedule": options["schedule"],
                    "template": {
                        "excludedResources": ["events", "events.events.k8s.io"],
                        "snapshotVolumes": False,
                    },
                }
            },
        }
    }


def _images(spec: PlatformSpec) -> Sequence[str]:
    rehearsing = spec.options("velero")["rehearsal"] is not None
    return ("velero", _plugin(spec), *((INFERENCE_IMAGE,) if rehearsing else ()))


def _asked_namespaces(spec: PlatformSpec) -> Sequence[Namespace]:
    if spec.options("velero")["rehearsal"] is None:
        return ()
    return (restore_rehearsal.SCRATCH, restore_rehearsal.WITNESS)


def _rehearsal(spec: PlatformSpec) -> Sequence[Manifest]:
    options = spec.options("velero")
    rehearsal: Mapping[str, Any] | None = options["rehearsal"]
    if rehearsal is None:
        return ()
    plan = restore_rehearsal.plan(rehearsal, _SCHEDULE, options["recovery_point_hours"])
    return restore_rehearsal.manifests(spec, rehearsal, plan)


def _traffic(spec: PlatformSpec) -> Mapping[str, Traffic]:
    nothing = {each.name: Traffic(api_server=False) for each in _asked_namespaces(spec)}
    return {_NAMESPACE: Traffic(scrapes=(8085,), endpoints=True), **nothing}


VELERO: Final = Addon(
    name="velero",
    summary="backups of the cluster's objects, in the country",
    namespaces=(restore_rehearsal.VELERO,),
    releases=(Release("velero", "velero", _NAMESPACE),),
    options=VeleroOptions,
    check=_check,
    images=_images,
    values=_values,
    traffic=_traffic,
    asked_namespaces=_asked_namespaces,
    after=_rehearsal,
    scrapes=(Scrape(_NAMESPACE, {"app.kubernetes.io/name": "velero"}, 8085),),
)
