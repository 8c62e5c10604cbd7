"""Storage: volumes of known classes, and backups: in the cluster's place, with one's own keys."""

from falaj.components.catalogue.clusters import (
    GEO_REPLICATION,
    PLACE_PARAMETERS,
    PROVIDER_KEYS,
    REPLICATION_PARAMETERS,
    STORAGE_DRIVERS,
    StorageDriver,
)
from falaj.components.catalogue.destinations import (
    BACKUP_ABROAD,
    BACKUP_AWS,
    BACKUP_AZURE,
    BACKUP_STORES,
    MOUNT_REGIONS,
    MOUNT_SERVERS,
    VOLUME_SERVERS,
)
from falaj.components.kubernetes.admission.destinations import (
    ALLOWED,
    SAID_ANEW,
    host_names,
    regions,
)
from falaj.components.kubernetes.admission.policy import (
    CLUSTER,
    Check,
    ClusterScope,
    Policy,
    Target,
    abroad_in_terms,
    is_own_host,
    joined,
    literal,
    texts,
    when,
)

_KEY = "kubernetes-storage-class-key"
_STAYS = "kubernetes-storage-abroad"
_LOW = 'k.lowerAscii().replace("csi.storage.k8s.io/", "")'


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Classes of volumes and snapshots, volumes, claims, and locations of backups."""
    return (
        Policy(
            "storage-classes",
            (Target("storage.k8s.io", "v1", ("storageclasses",)),),
            (_keys(), _stays(scope), _topologies(scope)),
            {"parameters": "object.?parameters.orValue({})"},
        ),
        Policy(
            "snapshot-classes",
            (Target("snapshot.storage.k8s.io", "v1", ("volumesnapshotclasses",)),),
            (_stays(scope),),
            {"parameters": "object.?parameters.orValue({})"},
        ),
        _volumes(scope),
        _claims(scope),
        _backups(scope),
    )


def _has(names: tuple[str, ...], also: str = "true") -> str:
    """Whether one of some parameters is there, and ``also`` holds for its value."""
    value = "variables.parameters[k]"
    return f"variables.parameters.exists(k, {_LOW} in {texts(names)} && {also.format(v=value)})"


def _keys() -> Check:
    by_driver: dict[StorageDriver, list[str]] = {}
    for name, driver in STORAGE_DRIVERS.items():
        by_driver.setdefault(driver, []).append(name)
    wrong: list[str] = []
    for driver, names in by_driver.items():
        met: list[str] = []
        if driver.switch:
            met.append(_has((driver.switch,), '{v}.trim().lowerAscii() == "true"'))
        if driver.key:
            own = " && ".join(f"!{{v}}.contains({literal(each)})" for each in PROVIDER_KEYS)
            met.append(_has((driver.key,), f'{{v}}.trim() != "" && {own}'))
        fine = f"({' && '.join(met)})" if met else ""
        instead = _has(driver.instead) if driver.instead else ""
        fine = " || ".join(each for each in (fine, instead) if each)
        needed = " and ".join(each for each in (driver.switch, driver.key) if each)
        needed = " or ".join((*([needed] if needed else []), *driver.instead))
        wrong.append(when(
            f"object.provisioner in {texts(names)} && !({fine})",
            f"object.provisioner + {literal(f' without {needed}')}",
        ))  # fmt: skip
    return Check(
        _KEY,
        " + ".join(wrong),
        "volumes would be encrypted with no key of one's own",
        "classes that name a customer-managed key",
        'set encrypted: "true" and kmsKeyId (EBS), diskEncryptionSetID (Azure disks), kmsKeyId '
        "(FSx), or an account or file system that has one",
    )


def _stays(scope: ClusterScope) -> Check:
    return Check(
        _STAYS,
        _names_abroad(scope),
        "volumes or their copies would be elsewhere",
        f"{scope.in_words}; copies within it (LRS, ZRS)",
        "remove the place or name one of these",
    )


def _names_abroad(scope: ClusterScope) -> str:
    """Parameters that name a place abroad or copies to one, each as ``key: value``."""
    region = scope.placed.region
    value = "variables.parameters[k]"
    places = (
        f'{_LOW} in {texts(PLACE_PARAMETERS)} && {value}.split(",").exists(p, '
        f'p.trim().lowerAscii().replace(" ", "") != {literal(region)} && '
        f"!p.trim().matches({literal(scope.zones)}))"
    )
    copies = (
        f"{_LOW} in {texts(REPLICATION_PARAMETERS)} && {value}.upperAscii().matches("
        f"{literal(f'(?:^|_)(?:{chr(124).join(sorted(GEO_REPLICATION))})$')})"
    )
    arn = "^arn:aws[a-z-]*:[a-z0-9-]*:[a-z]"
    arns = f"{value}.matches({literal(arn)}) && !{value}.matches({literal(_arn_of(region))})"
    return (
        f"variables.parameters.filter(k, ({places}) || ({copies}) || ({arns}))"
        f'.map(k, k + ": " + {value})'
    )


def _arn_of(region: str) -> str:
    return rf"^arn:aws[a-z-]*:[a-z0-9-]*:{region}:"


def _topologies(scope: ClusterScope) -> Check:
    terms = "object.?allowedTopologies.orValue([])"
    return Check(
        "kubernetes-placement-abroad",
        abroad_in_terms(scope, terms, "matchLabelExpressions"),
        "volumes would be made elsewhere",
        scope.in_words,
        "name places of this cluster only",
    )


def _volumes(scope: ClusterScope) -> Policy:
    server = is_own_host("s", scope.hosts_pattern, scope.networks)
    region = f"v != {literal(scope.placed.region)} && !v.matches({literal(scope.zones)})"
    foreign = f'{_option(MOUNT_REGIONS)}.filter(v, {region}).map(v, "region " + v)'
    return Policy(
        "volumes",
        (Target("", "v1", ("persistentvolumes",)),),
        (
            Check(
                _STAYS,
                f"variables.servers.filter(s, !{server}) + {foreign} + {_names_abroad(scope)}",
                "volumes on servers elsewhere",
                "hosts and addresses of one's own networks", "use a server of this place",
            ),
            Check(
                "kubernetes-placement-abroad",
                abroad_in_terms(
                    scope, "object.spec.?nodeAffinity.?required.?nodeSelectorTerms.orValue([])"
                ),
                "the volume is elsewhere", scope.in_words, "name places of this cluster only",
            ),
            Check(
                "kubernetes-volume-host-path",
                when("has(object.spec.hostPath)", "object.spec.hostPath.path"),
                "the volume is a path of a node", "claims of a class, local volumes",
                "use a storage class",
            ),
        ),
        {
            "parameters": "object.spec.?csi.?volumeAttributes.orValue({})",
            "told": '([object.spec.?nfs.?server.orValue("")] + '
            '[object.spec.?iscsi.?targetPortal.orValue("")] + '
            "object.spec.?iscsi.?portals.orValue([]) + "
            "object.spec.?cephfs.?monitors.orValue([]) + "
            "object.spec.?rbd.?monitors.orValue([]) + variables.parameters.filter(k, "
            f"{_LOW} in {texts(VOLUME_SERVERS)}).map(k, variables.parameters[k]) + "
            f'{_option(MOUNT_SERVERS)}).filter(v, v != "")',
            "servers": host_names("variables.told"),
        },
    )  # fmt: skip


def _option(options: tuple[str, ...]) -> str:
    """Values of some options of mounting."""
    name = literal(f"^-*(?:{'|'.join(options)})[= ]+")
    return (
        "object.spec.?mountOptions.orValue([]).map(o, o.lowerAscii())"
        f'.filter(o, o.matches({name})).map(o, o.replace(o.find({name}), "").trim())'
    )


def _claims(scope: ClusterScope) -> Policy:
    name = 'object.spec.?storageClassName.orValue("")'
    # Volumes that are there already are claimed by their name, of no class.
    named = 'object.spec.?volumeName.orValue("") != ""'
    return Policy(
        "claims",
        (Target("", "v1", ("persistentvolumeclaims",), ("CREATE",)),),
        (
            Check(
                "cluster-storage-class",
                when(f"!({name} in {texts(scope.storage_classes)}) && !({named})",
                     f'({name} == "" ? "no class" : {name})'),
                "the claim is of a class whose volumes aren't known to be encrypted",
                ", ".join(scope.storage_classes),
                "set storageClassName to one of them, or name a volume that is there",
            ),
        ),
        exempt=CLUSTER,
    )  # fmt: skip


def _backups(scope: ClusterScope) -> Policy:
    """Where Velero's plugins write: in their own store, or in the region that they are told.

    A bucket's name says no place, so that one of them has to be said.
    """
    provider, config = "variables.provider", "variables.config"
    store = is_own_host("h", scope.hosts_pattern, scope.networks)
    region = f'{config}[?"region"].optFlatMap(o, optional.ofNonZeroValue(o)).orValue("")'
    return Policy(
        "backup-locations",
        (Target("velero.io", "*", ("backupstoragelocations", "volumesnapshotlocations")),),
        (
            Check(
                "kubernetes-backup-abroad",
                joined((
                    when(f"{provider} in {texts(BACKUP_ABROAD)}", provider),
                    f"variables.stores.filter(h, !{store})",
                    when(
                        f"size(variables.stores) == 0 && {provider} in {texts(BACKUP_AWS)} && "
                        f"!({region} in {regions(scope)})",
                        f'({region} == "" ? "no region" : {region})',
                    ),
                    when(
                        f"size(variables.stores) == 0 && {provider} in {texts(BACKUP_AZURE)} && "
                        'object.kind == "BackupStorageLocation"',
                        '"no storageAccountURI"',
                    ),
                )),
                "backups would be elsewhere",
                f"regions of the country; stores at {ALLOWED}",
                "set config.region, config.s3Url or config.storageAccountURI to one of these",
            ),
        ),
        {
            "provider": 'object.spec.?provider.optFlatMap(o, optional.ofNonZeroValue(o))'
            '.orValue("").lowerAscii()',
            "config": "object.spec.?config.orValue({})",
            "told": f"{config}.filter(k, {config}[k] != null && {config}[k] != \"\" && "
            f"(k in {texts(BACKUP_STORES)} || {config}[k].contains(\"://\")))"
            f".map(k, {config}[k])",
            "stores": host_names("variables.told"),
        },
        SAID_ANEW,
    )  # fmt: skip
