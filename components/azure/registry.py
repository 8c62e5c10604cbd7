"""A registry of images: private, under our key, in one region."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import containerregistry as acr
from pulumi_azure_native import keyvault, monitor

from falaj.components.azure._component import (
    client_of,
    compact,
    component_options,
    kept,
    resource_group,
)
from falaj.components.azure._ids import key_identifier, user_assigned
from falaj.components.azure._private_endpoint import Door, private_endpoint
from falaj.components.azure._roles import KEY_USER, Grant, grant
from falaj.components.azure._vault import AUTOMATIC, FIXED, key_properties, vault_properties
from falaj.components.specification.names import physical_name
from falaj.components.specification.property_names import engine_inputs
from falaj.components.specification.registry import RegistryArgs, check

__all__ = ["Registry", "RegistryArgs"]

#: Days after which an image without a tag is removed. Deployments name images by digest, which may
#: have lost their tag; a month covers a roll-back.
_UNTAGGED_DAYS = 30
_LOGS = ("ContainerRegistryLoginEvents", "ContainerRegistryRepositoryEvents")
#: Where nodes of AKS look for the platform's own images, in clusters without a way out:
#: https://learn.microsoft.com/azure/aks/network-isolated
_AKS_RULE = ("aks-managed-mcr", "mcr.microsoft.com/*", "aks-managed-repository/*")


#: The registry's own identity, where a client id is asked for: a "reserved word on ACR service"
#: (azure-cli, command module acr, rotate_key).
_ITSELF = "system"
#: Days for which the first key's vault can be had back, the least that Azure takes, and after
#: which its key would get a new version: it is gone long before.
_FIRST_WINDOW_DAYS = 7
_FIRST_ROTATION_DAYS = 365


@dataclass(frozen=True)
class _Key:
    """A key of the registry, and as whom it reads it."""

    identifier: pulumi.Input[str]
    reader: pulumi.Input[str]
    """Client id of a user-assigned identity, or `_ITSELF`."""
    granted: pulumi.Resource | None = None
    """What lets that identity use it, where it is the component's."""


class Registry(pulumi.ComponentResource):
    """A registry of images and other artifacts, reached through a private endpoint only.

    Tier Premium: encrypted with our key, spread over the region's zones, never replicated to
    another region. There is no administrator's password and no anonymous pull, and images can't be
    carried out by export. What is pulled through from other registries comes from ``upstreams``
    only; besides, AKS gets the platform's own images from ``mcr.microsoft.com`` through it, as
    ``aks-managed-repository/…``, so that nodes need no way out. Images that have had no tag for 30
    days are removed.

    Azure lets a registry through the firewall of a vault as its system-assigned identity only,
    makes one with a key as a user-assigned identity only, and adds no key later. It therefore
    takes two updates, as Azure's maintainers say (https://github.com/Azure/acr/issues/523;
    https://github.com/MicrosoftDocs/azure-docs/issues/61064): with ``first_key`` the registry is
    made with a key of a vault that is open to the network, holds nothing else and takes roles
    only, and its own identity is granted ``registry_key_id``; without it the registry, which is
    still empty, moves to that key as itself, and the open vault goes. The tenant's vault stays
    closed. `falaj up` does both, one after the other.

    Azure's content trust can't be had together with a key of our own; packages and images are
    signed by those who make them. Repositories come into being with their first image.

    Example:
        ``registry = Registry("registry", {"region": "uaenorth", "tenant": "bank", "owner":
        "it@bank.ae", "data_class": "confidential", "cost_center": "42", "registry_key_id":
        keys.key_ids["registry"], "key_identity_id": keys.key_identity_id, "key_ring_id":
        keys.key_ring_id, "network_id": network.network_id, "endpoint_subnet_id":
        network.endpoint_subnet_ids["1"]}, opts)``

    Makes: a resource group, a registry with the right to use its key, a private endpoint with
    names, a cache rule for AKS and one for each upstream; a diagnostic setting with
    ``log_destination_id``; with ``first_key`` a vault, a key and a right to use it. In
    ``production`` the registry is protected and retained.
    """

    registry_id: pulumi.Output[str]
    """Id of the registry."""
    registry_host: pulumi.Output[str]
    """Its host name."""
    repository_urls: pulumi.Output[dict[str, str]]
    """Address of each repository by name."""
    repository_ids: pulumi.Output[dict[str, str]]
    """Id of the registry by repository: repositories have no ids of their own."""

    def __init__(
        self, name: str, args: RegistryArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:Registry", name, engine_inputs(args), component_options(opts)
        )
        self._spec = spec
        self._name = name
        self._opts = pulumi.ResourceOptions(parent=self)
        self._group = resource_group(name, spec.placed, self._opts, stateful=True)
        key = self._first_key(args) if spec.first_key else _Key(args["registry_key_id"], _ITSELF)
        registry = self._registry(args, key)
        self._use(args, registry)
        door = Door(
            args.get("network_id", ""),
            args.get("endpoint_subnet_id", ""),
            self._group.name,
            spec.placed.region,
            spec.placed.tags(name),
        )
        private_endpoint(f"{name}-endpoint", "registry", registry.id, door, self._opts)
        self._cache(registry)
        workspace = args.get("log_destination_id")
        if workspace is not None:
            self._log("logs", registry.id, _LOGS, workspace)
        self.registry_id = registry.id
        self.registry_host = registry.login_server
        self.repository_urls = registry.login_server.apply(
            lambda host: {each: f"{host}/{each}" for each in spec.repositories}
        )
        self.repository_ids = registry.id.apply(lambda id: dict.fromkeys(spec.repositories, id))
        self.register_outputs(
            {
                "registryId": self.registry_id,
                "registryHost": self.registry_host,
                "repositoryUrls": self.repository_urls,
                "repositoryIds": self.repository_ids,
            }
        )

    def _first_key(self, args: RegistryArgs) -> _Key:
        """A key with which the registry can be made, in a vault that it reaches meanwhile."""
        placed, name = self._spec.placed, self._name
        vault = keyvault.Vault(
            # An automatic name, so that another never meets this one among deleted vaults.
            physical_name(name, "first", limit=AUTOMATIC),
            resource_group_name=self._group.name,
            location=placed.region,
            properties=vault_properties(
                client_of(self).tenant_id,
                _FIRST_WINDOW_DAYS,
                closed=False,
            ),
            tags=placed.tags(name),
            opts=self._opts,
        )
        key = keyvault.Key(
            f"{name}-first-key",
            key_name="registry",
            vault_name=vault.name,
            resource_group_name=self._group.name,
            properties=key_properties(_FIRST_ROTATION_DAYS),
            tags=placed.tags(name),
            opts=pulumi.ResourceOptions.merge(
                self._opts,
                # It goes with its vault: Resource Manager has no verb to delete it alone.
                pulumi.ResourceOptions(deleted_with=vault, ignore_changes=list(FIXED)),
            ),
        )
        workspace = args.get("log_destination_id")
        if workspace is not None:
            self._log("first-logs", vault.id, ("AuditEvent",), workspace)
        reader = user_assigned(
            args.get("key_identity_id", ""), pulumi.InvokeOutputOptions(parent=self)
        )
        granted = grant(
            f"{name}-first-use", Grant(KEY_USER, vault.id, reader.principal_id), self._opts
        )
        return _Key(key.key_uri, reader.client_id, granted)

    def _use(self, args: RegistryArgs, registry: acr.Registry) -> None:
        """Let the registry itself use its key, and no other of the vault.

        Roles in a hardware module are granted by those who administer it, in the module; the one
        that stands here then is about the registry, where it allows nothing.
        """

        def scope(found: Mapping[str, str]) -> str:
            key = key_identifier(found["key"])
            return found["own"] if key.hardware_module else f"{found['ring']}/keys/{key.name}"

        itself = registry.identity.apply(lambda found: (found.principal_id or "") if found else "")
        scopes = pulumi.Output.all(
            key=args["registry_key_id"], ring=args.get("key_ring_id", ""), own=registry.id
        )
        grant(f"{self._name}-use", Grant(KEY_USER, scopes.apply(scope), itself), self._opts)

    def _registry(self, args: RegistryArgs, key: _Key) -> acr.Registry:
        placed = self._spec.placed
        on, off = acr.PolicyStatus.ENABLED, acr.PolicyStatus.DISABLED
        identity = pulumi.Output.from_input(args.get("key_identity_id", ""))
        after = pulumi.ResourceOptions(depends_on=[key.granted] if key.granted else None)
        return acr.Registry(
            f"{self._name}-registry",
            registry_name=compact(placed, "registry", self._name),
            resource_group_name=self._group.name,
            location=placed.region,
            sku=acr.SkuArgs(name=acr.SkuName.PREMIUM),
            admin_user_enabled=False,
            anonymous_pull_enabled=False,
            data_endpoint_enabled=True,
            public_network_access=acr.PublicNetworkAccess.DISABLED,
            network_rule_set=acr.NetworkRuleSetArgs(
                default_action=acr.DefaultAction.DENY, ip_rules=[]
            ),
            # Defender for Containers reads images as a service that Azure vouches for.
            network_rule_bypass_options=acr.NetworkRuleBypassOptions.AZURE_SERVICES,
            zone_redundancy=(
                acr.ZoneRedundancy.ENABLED if placed.place.zones else acr.ZoneRedundancy.DISABLED
            ),
            # Azure tells no way to take the first away while the key moves from it to the other.
            identity=acr.IdentityPropertiesArgs(
                type=acr.ResourceIdentityType.SYSTEM_ASSIGNED_USER_ASSIGNED,
                user_assigned_identities=identity.apply(
                    lambda id: {id: acr.UserIdentityPropertiesArgs()}
                ),
            ),
            encryption=acr.EncryptionPropertyArgs(
                status=acr.EncryptionStatus.ENABLED,
                key_vault_properties=acr.KeyVaultPropertiesArgs(
                    # Without a version, so that the registry follows the newest.
                    key_identifier=key.identifier,
                    identity=key.reader,
                ),
            ),
            policies=acr.PoliciesArgs(
                export_policy=acr.ExportPolicyArgs(status=acr.ExportPolicyStatus.DISABLED),
                quarantine_policy=acr.QuarantinePolicyArgs(
                    status=on if self._spec.quarantine else off
                ),
                retention_policy=acr.RetentionPolicyArgs(days=_UNTAGGED_DAYS, status=on),
                # Not together with the removal of untagged images.
                soft_delete_policy=acr.SoftDeletePolicyArgs(status=off),
                # Not together with a key of our own: https://learn.microsoft.com/azure/
                # container-registry/tutorial-enable-customer-managed-keys
                trust_policy=acr.TrustPolicyArgs(status=off, type=acr.TrustPolicyType.NOTARY),
            ),
            tags=placed.tags(self._name),
            opts=pulumi.ResourceOptions.merge(kept(self._opts, placed.retained), after),
        )

    def _cache(self, registry: acr.Registry) -> None:
        rules = [_AKS_RULE]
        rules += [
            (upstream.replace(".", "-"), f"{upstream}/*", f"{upstream.replace('.', '-')}/*")
            for upstream in self._spec.upstreams
            # Rules must not overlap; Microsoft's registry has its own already.
            if upstream != "mcr.microsoft.com"
        ]
        for title, source, target in rules:
            acr.CacheRule(
                f"{self._name}-{title}",
                cache_rule_name=title,
                registry_name=registry.name,
                resource_group_name=self._group.name,
                source_repository=source,
                target_repository=target,
                opts=self._opts,
            )

    def _log(
        self,
        title: str,
        resource: pulumi.Input[str],
        categories: tuple[str, ...],
        workspace: pulumi.Input[str],
    ) -> None:
        monitor.DiagnosticSetting(
            f"{self._name}-{title}",
            name="audit",
            resource_uri=resource,
            workspace_id=workspace,
            logs=[
                monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
                for category in categories
            ],
            metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
            opts=self._opts,
        )
