"""Microsoft.Storage: what an account holds, containers, shares and policies."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, invented, keys, known, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.services import storage
from falaj.sandbox.clouds.model import Problem

_PREFIXES: Final = re.compile(r"(?!-)[a-z0-9-]{3,63}(?<!-)|\$root|\$web|\$logs")


def _container_problems(ask: Ask) -> Iterator[Problem]:
    name = ask.text("containerName")
    if name and not name.startswith("$"):
        yield from naming.CONTAINER.check("containerName", name)
    elif name and name not in ("$root", "$web", "$logs"):
        yield Problem(
            "containerName",
            f"{name!r} isn't allowed; with a dollar there are $root, $web and $logs only",
        )


def _container_conflicts(ask: Ask) -> Iterator[Problem]:
    account = _account(ask)
    if account is None:
        return
    if ask.text("publicAccess") in ("Blob", "Container") and (
        account.at("allowBlobPublicAccess") in (None, False)
    ):
        yield Problem("publicAccess", "the account doesn't allow public access; set None")
    if ask.flag("immutableStorageWithVersioning.enabled") and account.flag("isHnsEnabled"):
        yield Problem(
            "immutableStorageWithVersioning",
            "doesn't go with the account's isHnsEnabled; use a container's policy instead",
        )
    scope = ask.text("defaultEncryptionScope")
    if ask.world and ask.id and scope and scope != "$account-encryption-key":
        parent = ask.id.split("/blobServices/")[0]
        if not known.exists(ask.world, f"{parent}/encryptionScopes/{scope}"):
            yield Problem(
                "defaultEncryptionScope",
                f"the account has no encryption scope {scope!r}; make it first",
            )


def _account(ask: Ask) -> Ask | None:
    if ask.world is None or ask.id is None:
        return None
    segments = ask.id.split("/")
    made = known.by_id(ask.world, "/".join(segments[:9]))
    return Ask(storage.ACCOUNT, made.inputs, {}, ask.world, made.id) if made else None


def _policy_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.between(ask, "immutabilityPeriodSinceCreationInDays", 1, 146000, "days")
    if ask.flag("allowProtectedAppendWrites") and ask.flag("allowProtectedAppendWritesAll"):
        yield Problem(
            "allowProtectedAppendWritesAll",
            "goes without allowProtectedAppendWrites; set one of them",
        )


def _service_problems(ask: Ask) -> Iterator[Problem]:
    for path in ("deleteRetentionPolicy", "containerDeleteRetentionPolicy"):
        yield from checks.between(ask, f"{path}.days", 1, 365, "days")
        if ask.flag(f"{path}.enabled"):
            yield from checks.needs(ask, f"{path}.days", "say for how many days")
    yield from checks.between(ask, "changeFeed.retentionInDays", 1, 146000, "days")
    if ask.flag("restorePolicy.enabled"):
        yield from checks.needs(ask, "restorePolicy.days", "say for how many days")
        # Source: storage/blobs/point-in-time-restore-overview (prerequisites).
        for needed in (
            "isVersioningEnabled",
            "changeFeed.enabled",
            "deleteRetentionPolicy.enabled",
        ):
            if ask.at(needed) in (None, False):
                yield Problem(needed, "restorePolicy needs it; set it to true")
        kept, back = ask.number("deleteRetentionPolicy.days"), ask.number("restorePolicy.days")
        if kept is not None and back is not None and back >= kept:
            yield Problem(
                "restorePolicy.days",
                f"{back:g} must be less than the {kept:g} days of deleteRetentionPolicy",
            )


def _service_conflicts(ask: Ask) -> Iterator[Problem]:
    account = _account(ask)
    if account and account.flag("isHnsEnabled"):
        for path in ("isVersioningEnabled", "changeFeed.enabled", "restorePolicy.enabled"):
            if ask.flag(path):
                # Source: storage/blobs/storage-feature-support-in-storage-accounts.
                yield Problem(path, "doesn't go with the account's isHnsEnabled; leave it out")


def _lifecycle_problems(ask: Ask) -> Iterator[Problem]:
    rules = ask.items("policy.rules")
    if not 1 <= len(rules) <= 100 and isinstance(ask.at("policy.rules"), list):
        yield Problem("policy.rules", f"{len(rules)} rules are given; allowed are 1 to 100")
    names: set[str] = set()
    for path, _ in rules:
        name = ask.text(f"{path}.name")
        if name and not re.fullmatch(r"[A-Za-z0-9-]{1,256}", name):
            yield Problem(
                f"{path}.name", f"{name!r} isn't allowed; allowed are letters, digits and hyphens"
            )
        if name in names:
            yield Problem(f"{path}.name", f"{name!r} is used twice; give each rule its own name")
        names.add(name or "")
        actions = f"{path}.definition.actions"
        if all(ask.is_absent(f"{actions}.{part}") for part in ("baseBlob", "snapshot", "version")):
            yield Problem(actions, "is empty: say what happens to baseBlob, snapshot or version")
        kinds = f"{path}.definition.filters.blobTypes"
        for where, text in ask.texts(kinds):
            yield from checks.one_of(where, text, ("blockBlob", "appendBlob"))
        yield from checks.needs(ask, kinds, "name blockBlob or appendBlob")
        for where, text in ask.texts(f"{path}.definition.filters.prefixMatch"):
            if not _PREFIXES.fullmatch(text.split("/")[0]):
                yield Problem(where, f"{text!r} must start with the name of a container")


def _share_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.between(ask, "shareQuota", 1, 262144, "GiB")
    if (
        ask.text("enabledProtocols") != "NFS"
        and ask.is_given("rootSquash")
        and not (ask.is_given("enabledProtocols") and ask.text("enabledProtocols") is None)
    ):
        yield Problem("rootSquash", "goes with enabledProtocols NFS only")


def _share_conflicts(ask: Ask) -> Iterator[Problem]:
    account = _account(ask)
    if account is None:
        return
    is_premium = account.text("kind") == "FileStorage"
    if ask.text("enabledProtocols") == "NFS" and not is_premium:
        yield Problem("enabledProtocols", "NFS needs an account of the kind FileStorage")
    quota = ask.number("shareQuota")
    if (
        is_premium
        and quota is not None
        and quota < 100
        and "V2" not in (account.text("sku.name") or "")
    ):
        yield Problem("shareQuota", f"{quota:g} GiB is too small; premium shares start at 100 GiB")
    tier = ask.text("accessTier")
    if tier == "Premium" and not is_premium:
        yield Problem("accessTier", "Premium needs an account of the kind FileStorage")
    if tier in ("Hot", "Cool", "TransactionOptimized") and is_premium:
        yield Problem("accessTier", f"{tier} doesn't go with the kind FileStorage; leave it out")


def _scope_problems(ask: Ask) -> Iterator[Problem]:
    if ask.text("source") == "Microsoft.KeyVault":
        yield from checks.needs(ask, "keyVaultProperties.keyUri", "give the key's address")
    yield from keys.address("keyVaultProperties.keyUri", ask.text("keyVaultProperties.keyUri"))


def _scope_conflicts(ask: Ask) -> Iterator[Problem]:
    uri = ask.text("keyVaultProperties.keyUri")
    yield from keys.usable(ask, "keyVaultProperties.keyUri", uri)


def _container_obstacles(ask: Ask) -> Iterator[Problem]:
    policies = "azure-native:storage:BlobContainerImmutabilityPolicy"
    for made in ask.world.all(policies) if ask.world else ():
        if ask.id and arm.is_below(made.id, ask.id) and made.outputs.get("state") == "Locked":
            yield Problem(
                "",
                "its immutability policy is locked; it can go when all that it holds "
                "is past its time",
            )


def _container_outputs(ask: Ask) -> dict[str, Any]:
    return {
        "lastModifiedTime": invented.MOMENT,
        "leaseState": "Available",
        "leaseStatus": "Unlocked",
        "hasImmutabilityPolicy": False,
        "hasLegalHold": False,
        "publicAccess": ask.text("publicAccess") or "None",
    }


def _policy_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"state": "Unlocked"}


def _stamped(ask: Ask) -> dict[str, Any]:
    del ask
    return {"lastModifiedTime": invented.MOMENT}


def _scope_outputs(ask: Ask) -> dict[str, Any]:
    return {"creationTime": invented.MOMENT, **_stamped(ask)}


def _file_service_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.between(ask, "shareDeleteRetentionPolicy.days", 1, 365, "days")


KINDS: Final = (
    Kind(
        "azure-native:storage:BlobContainer",
        f"{storage.PATH}/blobServices/default/containers/{{containerName}}",
        problems=_container_problems,
        conflicts=_container_conflicts,
        obstacles=_container_obstacles,
        outputs=_container_outputs,
    ),
    Kind(
        "azure-native:storage:BlobServiceProperties",
        f"{storage.PATH}/blobServices/{{blobServicesName}}",
        name=naming.only("default"),
        problems=_service_problems,
        conflicts=_service_conflicts,
    ),
    Kind(
        "azure-native:storage:FileServiceProperties",
        f"{storage.PATH}/fileServices/{{fileServicesName}}",
        name=naming.only("default"),
        problems=_file_service_problems,
    ),
    Kind(
        "azure-native:storage:BlobContainerImmutabilityPolicy",
        f"{storage.PATH}/blobServices/default/containers/{{containerName}}/immutabilityPolicies/"
        "{immutabilityPolicyName}",
        name=naming.only("default"),
        problems=_policy_problems,
        outputs=_policy_outputs,
    ),
    Kind(
        "azure-native:storage:ManagementPolicy",
        f"{storage.PATH}/managementPolicies/{{managementPolicyName}}",
        name=naming.only("default"),
        problems=_lifecycle_problems,
        outputs=_stamped,
    ),
    Kind(
        "azure-native:storage:FileShare",
        f"{storage.PATH}/fileServices/default/shares/{{shareName}}",
        name=naming.CONTAINER,
        replaces=frozenset({"enabledProtocols"}),
        problems=_share_problems,
        conflicts=_share_conflicts,
        outputs=_stamped,
    ),
    Kind(
        "azure-native:storage:EncryptionScope",
        f"{storage.PATH}/encryptionScopes/{{encryptionScopeName}}",
        name=naming.NameRule(
            3,
            63,
            r"[A-Za-z0-9](?:-?[A-Za-z0-9])*",
            "letters, digits and single hyphens, starting and ending with a letter or digit",
        ),
        replaces=frozenset({"requireInfrastructureEncryption"}),
        problems=_scope_problems,
        conflicts=_scope_conflicts,
        outputs=_scope_outputs,
    ),
)
