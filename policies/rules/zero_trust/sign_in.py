"""Sign-in on Azure: identities instead of keys and passwords of services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    scalar,
    select,
    unmet,
    violation,
)
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import azure

# Keys and passwords of Azure's services, which stand for nobody and are known to many.

SIGN_IN_CONTROLS: Final = ("uae-ia:T5.2.2", "iso27001:A.5.16", "iso27001:A.8.5", "nist-800-207:6")
_TRUE: Final = ("true",)
_OFF: Final = Requirement("disableLocalAuth", _TRUE, "false")
_NESTED: Final = Requirement("properties.disableLocalAuth", _TRUE, "false")
_BATCH: Final = azure("batch:BatchAccount")
_COSMOS: Final = azure("cosmosdb:DatabaseAccount")
#: The default is on for all: the SDK's own words, and
#: https://learn.microsoft.com/azure/governance/policy/samples/built-in-policies.
_KEYS: Final[dict[Requirement, frozenset[str]]] = {
    _OFF: azure(
        "appconfiguration:ConfigurationStore",
        "applicationinsights:Component",
        "automation:AutomationAccount",
        "communication:CommunicationService",
        "cosmosdb:DatabaseAccount",
        "eventgrid:Domain",
        "eventgrid:PartnerNamespace",
        "eventgrid:Topic",
        "eventhub:Namespace",
        "search:Service",
        "servicebus:Namespace",
        "signalrservice:SignalR",
        "webpubsub:WebPubSub",
    ),
    _NESTED: azure(
        "botservice:Bot",
        "cognitiveservices:Account",
        "iothub:IotHubResource",
        "machinelearningservices:Compute",
        "maps:Account",
    ),
    Requirement("features.disableLocalAuth", _TRUE, "false"): azure(
        "operationalinsights:Workspace"
    ),
    Requirement("disableAccessKeyAuthentication", _TRUE, "false"): azure("redis:Redis"),
    Requirement("allowSharedKeyAccess", ("false",), "true"): azure("storage:StorageAccount"),
}
_OF_KIND: Final = {kind: demand for demand, kinds in _KEYS.items() for kind in kinds}
#: Of Cosmos DB's interfaces only the one for SQL works without keys:
#: https://learn.microsoft.com/azure/cosmos-db/nosql/how-to-connect-role-based-access-control
_KEYED: Final = frozenset(("enablemongo", "enablecassandra", "enablegremlin", "enabletable"))


@rule(
    "zero-trust-azure-local-auth",
    "Services take identities, not keys",
    Severity.MEDIUM,
    frozenset(_OF_KIND) | _BATCH,
    SIGN_IN_CONTROLS,
    "Switch keys off (disableLocalAuth, allowSharedKeyAccess …) and give each caller a role.",
)
def local_auth(resource: Resource, context: Context) -> Iterator[Finding]:
    """Where the service can do without keys at all."""
    if resource.kind in _COSMOS:
        names = {scalar(each) for _, each in select(resource.properties, "capabilities.name")}
        if names & _KEYED or scalar(resource.get("kind")) == "mongodb":
            return
    if resource.kind in _OF_KIND:
        yield from unmet(resource, (_OF_KIND[resource.kind],))
    if resource.kind in _BATCH:
        yield from _modes(resource)


def _modes(resource: Resource) -> Iterator[Finding]:
    """An account of Batch lists how callers sign in; by default all ways are open."""
    path = "allowedAuthenticationModes"
    modes = resource.get(path)
    given = items(modes)
    if is_unknown(modes) or any(is_unknown(each) for each in given):
        yield indeterminate(path, "whether keys work can't be seen")
    elif not given or any(scalar(each) == "sharedkey" for each in given):
        what = "SharedKey is among them" if given else "none are given, and keys work by default"
        yield violation(path, f"{what}; AAD must be the only one")


_REGISTRY: Final = azure("containerregistry:Registry")
_registry_admin = requirement_rule(
    "zero-trust-azure-registry-admin",
    "Registries have no admin account",
    Severity.HIGH,
    {_REGISTRY: (Requirement("adminUserEnabled", ("false",)),)},
    SIGN_IN_CONTROLS,
    "Leave adminUserEnabled out, or set it to false; grant AcrPull and AcrPush instead.",
)
_anonymous_pull = requirement_rule(
    "zero-trust-azure-anonymous-pull",
    "Nobody pulls images without signing in",
    Severity.CRITICAL,
    {_REGISTRY: (Requirement("anonymousPullEnabled", ("false",)),)},
    ("uae-ia:T5.2.2", "iso27001:A.8.3", "nist-800-207:6"),
    "Leave anonymousPullEnabled out, or set it to false.",
)

_SQL: Final = azure("sql:Server")
_INSTANCE: Final = azure("sql:ManagedInstance")
_POSTGRES: Final = azure("dbforpostgresql:Server")
_MYSQL: Final = azure("dbformysql:Server")
_SYNAPSE: Final = azure("synapse:Workspace")


@rule(
    "zero-trust-azure-database-passwords",
    "Databases take Entra ID's identities, not passwords",
    Severity.MEDIUM,
    _SQL | _INSTANCE | _POSTGRES | _MYSQL | _SYNAPSE,
    SIGN_IN_CONTROLS,
    "Switch passwords off: azureADOnlyAuthentication on SQL and Synapse, authConfig.passwordAuth "
    "Disabled on PostgreSQL, the parameter aad_auth_only on MySQL.",
)
def database_passwords(resource: Resource, context: Context) -> Iterator[Finding]:
    """A setting of the server, or a resource beside it. Passwords work by default."""
    path, wanted = _PASSWORDS.get(resource.kind, ("azureADOnlyAuthentication", "true"))
    value = resource.get(path)
    if scalar(value) == wanted:
        return
    if is_unknown(value):
        yield indeterminate(path, "whether passwords work can't be seen")
        return
    beside = _BESIDE.get(resource.kind)
    if beside and context.stack is None:
        yield indeterminate(path, "passwords may be switched off by a resource of its own")
        return
    if beside:
        found = children(context, resource, *beside)
        if any(_switches_off(each) for each in found):
            return
    given = (
        "isn't given, and passwords work by default" if value is ABSENT else "lets passwords in"
    )
    yield violation(path, f"{path.rpartition('.')[2]} {given}")


_PASSWORDS: Final = {
    **dict.fromkeys(_SQL | _INSTANCE, ("administrators.azureADOnlyAuthentication", "true")),
    **dict.fromkeys(_POSTGRES, ("authConfig.passwordAuth", "disabled")),
}
_BESIDE: Final = {
    **dict.fromkeys(_SQL, (azure("sql:ServerAzureADOnlyAuthentication"), "serverName")),
    **dict.fromkeys(
        _INSTANCE, (azure("sql:ManagedInstanceAzureADOnlyAuthentication"), "managedInstanceName")
    ),
    **dict.fromkeys(_MYSQL, (azure("dbformysql:Configuration"), "serverName")),
}


def _switches_off(resource: Resource) -> bool:
    if scalar(resource.get("azureADOnlyAuthentication")) == "true":
        return True
    name = scalar(resource.get("configurationName")) or resource.name.lower()
    return name == "aad_auth_only" and scalar(resource.get("value")) == "on"


_VAULT: Final = azure("keyvault:Vault")
_vault_roles = requirement_rule(
    "zero-trust-azure-vault-roles",
    "Who may use a vault is decided by Azure's roles",
    Severity.MEDIUM,
    {_VAULT: (Requirement("properties.enableRbacAuthorization", _TRUE, "false"),)},
    ("uae-ia:T5.2.2", "iso27001:A.5.15", "iso27001:A.8.3", "nist-800-207:6"),
    "Set properties.enableRbacAuthorization to true; with access policies, whoever may write the "
    "vault gives himself every key in it.",
)


@rule(
    "zero-trust-azure-vault-everything",
    "No access policy of a vault grants everything",
    Severity.HIGH,
    _VAULT | azure("keyvault:AccessPolicy"),
    ("uae-ia:T5.2.2", "uae-ia:T7.4.2", "iso27001:A.5.3", "iso27001:A.8.3", "nist-800-207:6"),
    "Name the operations that the identity needs, or better use roles of Key Vault.",
)
def vault_everything(resource: Resource, context: Context) -> Iterator[Finding]:
    """``all`` for keys, secrets, certificates or storage, or the right to purge them. Policies are
    ignored where the vault goes by roles."""
    own = resource.kind in _VAULT
    if own and scalar(resource.get("properties.enableRbacAuthorization")) == "true":
        return
    holder = "properties.accessPolicies.permissions" if own else "policy.permissions"
    for kind in ("keys", "secrets", "certificates", "storage"):
        for where, given in select(resource.properties, f"{holder}.{kind}"):
            if is_unknown(given):
                yield indeterminate(where, "what it grants can't be seen")
            for each in items(given):
                if scalar(each) in {"all", "purge", "*"}:
                    yield violation(where, f"the policy grants {scalar(each)} on {kind}")


RULES: tuple[Rule, ...] = (
    local_auth,
    _registry_admin,
    _anonymous_pull,
    database_passwords,
    _vault_roles,
    vault_everything,
)
