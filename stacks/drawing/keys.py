"""Which key encrypts what, and who may use which identity for what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Final

from falaj.components.catalogue.azure_roles import BUILT_IN_ROLES
from falaj.policies.model import Resource, get, is_unknown, items, leaves, text
from falaj.policies.reading.iam import read
from falaj.policies.reading.types import azure
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.kinds import (
    ALIASES,
    AWS_KEYS,
    AZURE_KEYS,
    DISK_SETS,
    IDENTITIES,
    KEYS,
    ROLES,
    aws,
)
from falaj.wire.documents import is_mapping, is_sequence

#: Keys and their other names, whole (https://docs.aws.amazon.com/kms/latest/developerguide).
_KEY_ARN: Final = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]*:\d*:(?:key|alias)/[A-Za-z0-9/_-]+")
_ALIAS_NAME: Final = re.compile(r"alias/[A-Za-z0-9/_-]+")
_VAULT_URL: Final = re.compile(
    r"https://([a-z0-9-]{3,24})\.(?:vault|managedhsm)\.[a-z.]+(?:/keys/([A-Za-z0-9-]+))?", re.I
)
_DISK_SET_SIGN: Final = "/diskencryptionsets/"
#: Parts whose key is for another resource: the property that names that one.
_OWNER_PATHS: Final = ("bucket", "fileSystemId", "accountName", "serverName", "namespaceName")
#: Resources that name keys and encrypt nothing with them.
_NOT_ENCRYPTING: Final = frozenset((
    *KEYS, *ALIASES, *ROLES,
    *aws("kms/grant", "kms/keyPolicy", "iam/policy", "iam/rolePolicy"),
    *azure("authorization:RoleAssignment", "authorization:RoleDefinition"),
    *azure("keyvault:Vault", "monitor:DiagnosticSetting", "network:PrivateEndpoint"),
))  # fmt: skip
_ROLE_POLICIES: Final = aws("iam/rolePolicy")
_POD_IDENTITIES: Final = aws("eks/podIdentityAssociation")
_ASSIGNMENTS: Final = azure("authorization:RoleAssignment")
_FEDERATED: Final = azure("managedidentity:FederatedIdentityCredential")
#: Azure's own roles that data is read and written with.
_BUILT_IN: Final[Mapping[str, str]] = {
    BUILT_IN_ROLES[name]: label
    for name, label in {
        "Storage Blob Data Reader": "reads",
        "Storage Blob Data Contributor": "reads, writes",
        "Storage Blob Data Owner": "owns data of",
        "AcrPull": "pulls from",
        "AcrPush": "pushes to",
        "Key Vault Secrets User": "reads secrets of",
        "Key Vault Crypto Service Encryption User": "encrypts with keys of",
        "Key Vault Crypto User": "uses keys of",
    }.items()
}
#: What nodes of a service are that keep data, by its name in ARNs.
_KEEPERS: Final = {
    "s3": "store", "secretsmanager": "secret", "ecr": "registry", "dynamodb": "database",
}  # fmt: skip
#: What touches the data of services, for policies that name no resource.
_DATA: Final[Mapping[str, Mapping[str, str]]] = {
    "every bucket": {
        "s3:getobject": "reads", "s3:putobject": "writes", "s3:deleteobject": "writes",
    },
    "every secret": {
        "secretsmanager:getsecretvalue": "reads", "secretsmanager:putsecretvalue": "writes",
    },
    "every registry": {"ecr:batchgetimage": "reads", "ecr:putimage": "writes"},
    "every table": {
        "dynamodb:getitem": "reads", "dynamodb:query": "reads", "dynamodb:putitem": "writes",
    },
}  # fmt: skip
#: What Secrets Manager adds to a secret's name in its ARN
#: (https://docs.aws.amazon.com/secretsmanager/latest/userguide/whats-in-a-secret.html).
_SECRET_SUFFIX: Final = re.compile(r"-[A-Za-z0-9]{6}$")
_READS: Final = re.compile(
    r"^(?:get|list|describe|batchget|batchcheck|head|select|scan|query|decrypt|view|read)", re.I
)


def keys(builder: Builder, parts: Mapping[str, list[str]]) -> None:
    """Edges from keys to what they encrypt.

    Args:
        builder: the drawing.
        parts: nodes by the URN of what they are made from.
    """
    drawn = _drawn_kinds(builder)
    for each in builder.stack.resources:
        if each.kind in _NOT_ENCRYPTING or not each.custom or each.package == "kubernetes":
            continue
        found = dict.fromkeys(_keys_of(builder, each))
        if not found:
            continue
        for target in _encrypted(builder, each, parts, drawn):
            for key in found:
                builder.edge("encrypts", key, target, "", each.urn)


def _encrypted(
    builder: Builder,
    resource: Resource,
    parts: Mapping[str, list[str]],
    drawn: frozenset[str],
) -> list[str]:
    """The nodes whose data a resource's key encrypts."""
    if resource.kind in DISK_SETS:
        return []  # Whose disks are in the set, they say themselves.
    if resource.urn in builder.nodes:
        return [resource.urn]
    if resource.urn in parts:
        return list(parts[resource.urn])
    for path in _OWNER_PATHS:
        found = builder.references.at(resource, path, drawn)[0]
        met = [each.urn for each in found if each.urn in builder.nodes]
        if met:
            return met
    return []


def _drawn_kinds(builder: Builder) -> frozenset[str]:
    return frozenset(
        builder.stack.by_urn[node.urn].kind
        for node in builder.nodes.values()
        if node.urn in builder.stack.by_urn
    )


def _keys_of(builder: Builder, resource: Resource) -> Iterator[str]:
    if resource.package == "aws":
        yield from _aws_keys(builder, resource)
    elif resource.package == "azure-native":
        yield from _azure_keys(builder, resource)


def _aws_keys(builder: Builder, resource: Resource) -> Iterator[str]:
    references = builder.references
    for path, leaf in leaves(resource.properties):
        top = str(path[0]) if path else ""
        last = str(path[-1]) if path else ""
        key_id = text(leaf)
        if is_unknown(leaf):
            if "key" in last.lower():
                found = references.origins(resource, top, AWS_KEYS | ALIASES)
                met = [id for each in found for id in _key_node(builder, each)]
                if met:
                    yield builder.choice(met)
            continue
        whole = _KEY_ARN.fullmatch(key_id) or _ALIAS_NAME.fullmatch(key_id)
        if not whole and not (key_id and "kms" in last.lower() and "key" in last.lower()):
            continue
        one = references.named(key_id, AWS_KEYS | ALIASES)
        if one is not None:
            yield from _key_node(builder, one)
        elif whole and "alias/aws/" not in key_id:
            yield _elsewhere(builder, resource, key_id)


def _key_node(builder: Builder, resource: Resource) -> Iterator[str]:
    if resource.kind in ALIASES:
        for each in builder.references.at(resource, "targetKeyId", AWS_KEYS)[0]:
            yield each.urn
    elif resource.urn in builder.nodes:
        yield resource.urn


def _elsewhere(builder: Builder, resource: Resource, value: str) -> str:
    stack = builder.references.stack_of(resource, value)
    name = builder.references.given_name(value) or value.rpartition("/")[2]
    area = builder.node("area:Keys and secrets", "area", "Keys and secrets")
    owner = f"of stack {stack}" if stack else "not of this stack"
    return builder.node(
        f"key:{value.lower()}", "key", name, owner, container=area, is_elsewhere=True
    )


def _azure_keys(builder: Builder, resource: Resource) -> Iterator[str]:
    references = builder.references
    sets, others = references.mentioned(resource, DISK_SETS, _DISK_SET_SIGN)
    for each in sets:
        if each.urn != resource.urn:
            yield from _azure_keys(builder, each)
    for value in others:
        yield _elsewhere(builder, resource, value)
    for block in _blocks(resource.properties):
        yield from _vault_key(builder, resource, block)


def _blocks(value: object) -> Iterator[Mapping[str, object]]:
    if is_mapping(value):
        yield value
        for each in value.values():
            yield from _blocks(each)
    elif is_sequence(value):
        for each in value:
            yield from _blocks(each)


def _vault_key(builder: Builder, resource: Resource, block: Mapping[str, object]) -> Iterator[str]:
    """The key that a block of settings names, by its URL or by its vault and name."""
    name = text(block.get("keyName")) or text(block.get("keyVaultKeyName"))
    for key, value in block.items():
        key_id = text(value)
        url = _VAULT_URL.fullmatch(key_id.rstrip("/").partition("?")[0]) or (
            _VAULT_URL.match(key_id) if "/keys/" in key_id else None
        )
        wanted = (url[2] if url else None) or name
        about_keys = "key" in key.lower() or "vault" in key.lower()
        if url and wanted and about_keys:
            yield _named_key(builder, resource, url[1], wanted)
        elif is_unknown(value) and about_keys and key.lower()[-2:] != "id":
            found = [
                each
                for top in resource.dependencies
                for each in builder.references.origins(resource, top, AZURE_KEYS)
                if not name or text(each.get("keyName")) == name
            ]
            met = [each.urn for each in found if each.urn in builder.nodes]
            if met:
                yield builder.choice(met)


def _named_key(builder: Builder, resource: Resource, vault: str, name: str) -> str:
    for each in builder.stack.of_kind(*sorted(AZURE_KEYS)):
        same_vault = text(each.get("vaultName")).lower() in {vault.lower(), ""}
        if same_vault and text(each.get("keyName")).lower() == name.lower():
            return each.urn
    area = builder.node("area:Keys and secrets", "area", "Keys and secrets")
    return builder.node(
        f"key:{vault.lower()}/{name.lower()}", "key", name, f"in vault {vault}",
        container=area, is_elsewhere=True,
    )  # fmt: skip


def access(builder: Builder) -> None:
    """Edges from identities to what their policies let them read and write."""
    _aws_access(builder)
    _azure_access(builder)


def _aws_access(builder: Builder) -> None:
    users = _users_of_roles(builder)
    named = _by_arn(builder)
    for each in builder.stack.of_kind(*sorted(_ROLE_POLICIES)):
        roles = builder.references.at(each, "role", ROLES)[0]
        if is_unknown(each.get("policy")):
            builder.hide("what a policy of a role allows", each)
        granted: dict[str, set[str]] = {}
        for statement in read(each.get("policy")).allowing:
            verbs = {_verb(action) for action in statement.actions}
            for resource in statement.resources:
                for id in _granted(named, resource):
                    granted.setdefault(id, set()).update(verbs)
            if "*" in statement.resources:
                for id, verb in _everything(builder, statement.actions):
                    granted.setdefault(id, set()).add(verb)
        if not roles or not granted:
            continue
        node = builder.choice(_identity(builder, one, users.get(one.urn, ())) for one in roles)
        for id, verbs in granted.items():
            builder.edge("reads", node, id, ", ".join(sorted(verbs)), each.urn)


def _verb(action: str) -> str:
    return "reads" if _READS.match(action.partition(":")[2]) else "writes"


def _by_arn(builder: Builder) -> dict[tuple[str, str], str]:
    """Nodes that keep something, by their kind and the name that is in their ARN."""
    found: dict[tuple[str, str], str] = {}
    for id, node in builder.nodes.items():
        if node.kind not in _KEEPERS.values() or not node.urn:
            continue
        resource = builder.stack.by_urn.get(node.urn)
        for key in ("bucket", "name", "arn") if resource else ():
            for source in (resource.properties, resource.outputs) if resource else ():
                if text(source.get(key)):
                    found[node.kind, text(source.get(key))] = id
    return found


def _granted(named: Mapping[tuple[str, str], str], arn: str) -> Iterator[str]:
    kind = _KEEPERS.get([*arn.split(":"), "", ""][2])
    if kind is None:
        return
    last = arn.partition(":::")[2] or arn.rpartition(":")[2]
    if ":secretsmanager:" in arn:
        last = _SECRET_SUFFIX.sub("", last)
    bare = last.removesuffix("/*").removesuffix("-*").removesuffix("*").rstrip("/-")
    for name in (arn, bare, bare.partition("/")[2], bare.partition("/")[0]):
        if name and (kind, name) in named:
            yield named[kind, name]
            return
    # Of a bucket's objects the bucket is meant; of a registry its name follows the slash.
    for pattern in {last, last.partition("/")[0], last.partition("/")[2]} - {"", "*"}:
        if "*" in pattern or "?" in pattern:
            yield from (
                id
                for (other, name), id in named.items()
                if other == kind and fnmatchcase(name, pattern)
            )


def _everything(builder: Builder, actions: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The nodes for all data of services, and what actions do with it."""
    for label, touching in _DATA.items():
        for known, verb in touching.items():
            if any(fnmatchcase(known, action.lower()) for action in actions):
                yield builder.node(f"every:{label}", "list", label, "of the account"), verb


def _users_of_roles(builder: Builder) -> dict[str, list[str]]:
    """Who takes a role: service accounts, machines, services."""
    found: dict[str, list[str]] = {}
    for each in builder.stack.of_kind(*sorted(_POD_IDENTITIES)):
        user = f"pods {text(each.get('namespace'))}/{text(each.get('serviceAccount'))}"
        for role in builder.references.at(each, "roleArn", ROLES)[0]:
            found.setdefault(role.urn, []).append(user)
    for role in builder.stack.of_kind(*sorted(ROLES)):
        for statement in read(role.get("assumeRolePolicy")).allowing:
            for kind, who in statement.principals:
                service = who.partition(".")[0]
                if kind == "Service" and service != "pods":
                    found.setdefault(role.urn, []).append(service)
    return found


def _identity(builder: Builder, resource: Resource, users: object) -> str:
    if resource.urn not in builder.nodes:
        details = [f"for {each}" for each in dict.fromkeys(items(users))]
        area = builder.node("area:Identities", "area", "Identities")
        builder.stand_for(resource, "identity", *map(str, details), container=area)
    return resource.urn


def _azure_access(builder: Builder) -> None:
    subjects: dict[str, list[str]] = {}
    for each in builder.stack.of_kind(*sorted(_FEDERATED)):
        for identity in builder.references.at(each, "resourceName", IDENTITIES)[0]:
            subject = text(each.get("subject")).removeprefix("system:serviceaccount:")
            subjects.setdefault(identity.urn, []).append(f"pods {subject.replace(':', '/')}")
    drawn = _drawn_kinds(builder)
    for each in builder.stack.of_kind(*sorted(_ASSIGNMENTS)):
        identities = builder.references.at(each, "principalId", IDENTITIES)[0]
        target = _scope(builder, each, drawn)
        role = text(each.get("roleDefinitionId")).rpartition("/")[2].lower()
        if identities and target:
            node = builder.choice(
                _identity(builder, one, subjects.get(one.urn, ())) for one in identities
            )
            label = _BUILT_IN.get(role, "has a role at")
            builder.edge("reads", node, target, label, each.urn)


def _scope(builder: Builder, assignment: Resource, drawn: frozenset[str]) -> str:
    value = get(assignment.properties, "scope")
    if is_unknown(value):
        found = builder.references.origins(assignment, "scope", drawn)
        met = [each.urn for each in found if each.urn in builder.nodes]
        return builder.choice(met) if met else ""
    one = builder.references.named(value, drawn)
    return one.urn if one is not None and one.urn in builder.nodes else ""
