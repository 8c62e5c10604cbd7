"""Machines, containers and apps: no shells, no lasting keys, no rights of the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_true,
    is_unknown,
    items,
    number,
    requirement_rule,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.reading.addresses import is_open
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import aws, aws_type, azure
from falaj.policies.rules.zero_trust.sign_in import SIGN_IN_CONTROLS
from falaj.wire.documents import is_mapping

# Machines and containers on AWS: sessions for metadata, no keys for shells, no host's rights.

_METADATA: Final = {
    aws_type("ec2/instance"): "metadataOptions.",
    aws_type("ec2/spotInstanceRequest"): "metadataOptions.",
    aws_type("ec2/launchTemplate"): "metadataOptions.",
    aws_type("ec2/launchConfiguration"): "metadataOptions.",
    aws_type("ec2/instanceMetadataDefaults"): "",
    aws_type("imagebuilder/infrastructureConfiguration"): "instanceMetadataOptions.",
}
_CONTROLS: Final = ("iso27001:A.8.9", "iso27001:A.8.5", "uae-ia:T5.5.x", "nist-800-207:6")


@rule(
    "zero-trust-aws-metadata-tokens",
    "Machines hand out metadata to sessions only (IMDSv2)",
    Severity.HIGH,
    frozenset(_METADATA),
    ("cis-aws:6.7", *_CONTROLS),
    "Set metadataOptions.httpTokens to required, or httpEndpoint to disabled.",
)
def metadata_tokens(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without a session's token a forged request is enough to get at a machine's role."""
    base = _METADATA[resource.kind]
    if text(resource.get(f"{base}httpEndpoint")).lower() == "disabled":
        return
    # A machine from a template has the template's setting, which is judged there.
    if resource.get("launchTemplate") is not ABSENT and resource.get("metadataOptions") is ABSENT:
        return
    yield from Requirement(
        f"{base}httpTokens",
        allowed=("required",),
        absent="without this setting requests without a token are answered",
        hint="it has to be required",
    ).findings(resource.properties)


@rule(
    "zero-trust-aws-metadata-hops",
    "Metadata stays on the machine",
    Severity.LOW,
    frozenset(_METADATA),
    _CONTROLS,
    "Set metadataOptions.httpPutResponseHopLimit to 1, so that containers can't take the "
    "machine's role; give them roles of their own.",
)
def metadata_hops(resource: Resource, context: Context) -> Iterator[Finding]:
    """A limit of two or more lets containers reach the machine's metadata."""
    path = f"{_METADATA[resource.kind]}httpPutResponseHopLimit"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "its value can't be known yet; it has to be 1")
    elif (hops := number(value)) is not None and hops > 1:
        yield violation(path, "answers may travel to containers and beyond; it has to be 1")


_SHELLS: Final = {
    **{
        aws_type(each): "keyName"
        for each in (
            "ec2/instance", "ec2/spotInstanceRequest", "ec2/launchTemplate",
            "ec2/launchConfiguration",
        )
    },
    aws_type("ec2/spotFleetRequest"): "launchSpecifications.keyName",
    aws_type("eks/nodeGroup"): "remoteAccess.ec2SshKey",
    aws_type("emr/cluster"): "ec2Attributes.keyName",
    aws_type("elasticbeanstalk/environment"): "keyName",
    aws_type("imagebuilder/infrastructureConfiguration"): "keyPair",
    aws_type("batch/computeEnvironment"): "computeResources.ec2KeyPair",
    aws_type("gamelift/fleet"): "keyName",
    aws_type("ec2/keyPair"): "publicKey",
}  # fmt: skip


@rule(
    "zero-trust-aws-shell-key",
    "Machines take no SSH keys",
    Severity.LOW,
    frozenset(_SHELLS),
    ("iso27001:A.8.5", "iso27001:A.8.2", "uae-ia:T5.5.x", "nist-800-207:6"),
    "Leave the key out and use Session Manager: it needs no port and no key, asks IAM, and keeps "
    "a record.",
)
def shell_key(resource: Resource, context: Context) -> Iterator[Finding]:
    """Keys that last, for shells that nobody records."""
    for path, value in select(resource.properties, _SHELLS[resource.kind]):
        # Whichever key it is, there is one.
        if is_unknown(value) or text(value):
            yield violation(path, "an SSH key may open a shell; Session Manager is allowed")


_TASK: Final = aws("ecs/taskDefinition")


def _containers(resource: Resource) -> Iterator[tuple[str, Any]]:
    value = resource.get("containerDefinitions")
    if isinstance(value, str):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        for each in items(parsed):
            yield "containerDefinitions", each
        return
    for index, each in enumerate(items(value)):
        at = "containerDefinitions"
        yield (at if is_unknown(value) else f"{at}[{index}]"), each


@rule(
    "zero-trust-aws-task-host-rights",
    "Tasks have no rights of their host",
    Severity.HIGH,
    _TASK,
    ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.5.x", "nist-800-207:3"),
    "Leave privileged, host networking and the host's processes out; use the network mode "
    "awsvpc with a security group for each service.",
)
def task_host_rights(resource: Resource, context: Context) -> Iterator[Finding]:
    """Privileged containers, and tasks in the host's network, process or IPC space."""
    for key in ("networkMode", "pidMode", "ipcMode"):
        value = resource.get(key)
        if is_unknown(value):
            yield indeterminate(key, "its value can't be known yet; it mustn't be host")
        elif text(value).lower() == "host":
            yield violation(key, f"{key} is the host's; tasks have one of their own")
    for path, container in _containers(resource):
        if is_unknown(container):
            yield indeterminate(path, "its containers can't be known yet; none may be privileged")
        elif is_mapping(container):
            value = container.get("privileged")
            if is_unknown(value):
                yield indeterminate(path, "whether it is privileged can't be known yet")
            elif is_true(value):
                yield violation(path, "a container is privileged, and with it owns its host")


# Machines and apps on Azure: no passwords, no debuggers, identities of their own.

_MACHINE: Final = azure("compute:VirtualMachine")
_SET: Final = azure("compute:VirtualMachineScaleSet")


@rule(
    "zero-trust-azure-machine-passwords",
    "Nobody logs in to machines with a password",
    Severity.HIGH,
    _MACHINE | _SET,
    SIGN_IN_CONTROLS,
    "Set osProfile.linuxConfiguration.disablePasswordAuthentication to true and give keys, or "
    "better let people sign in with Entra ID.",
)
def machine_passwords(resource: Resource, context: Context) -> Iterator[Finding]:
    """Of Linux; passwords work unless they are switched off
    (https://learn.microsoft.com/rest/api/compute/virtual-machines/create-or-update)."""
    base = "" if resource.kind in _MACHINE else "virtualMachineProfile."
    profile = resource.get(base + "osProfile")
    if profile is ABSENT or get(profile, "windowsConfiguration") is not ABSENT:
        return
    storage = resource.get(base + "storageProfile")
    if scalar(get(storage, "osDisk.osType")) == "windows" or scalar(
        get(storage, "imageReference.publisher")
    ).startswith("microsoftwindows"):
        return
    path = base + "osProfile.linuxConfiguration.disablePasswordAuthentication"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "whether passwords work can't be seen")
    elif not is_true(value):
        is_linux = get(profile, "linuxConfiguration") is not ABSENT
        if is_linux or get(profile, "adminPassword") is not ABSENT:
            given = "isn't given; passwords work by default" if value is ABSENT else "is false"
            yield violation(path, f"it {given}")


_APPS: Final = azure("web:WebApp", "web:WebAppSlot")

_debugging = requirement_rule(
    "zero-trust-azure-remote-debugging",
    "Nobody debugs apps from afar",
    Severity.HIGH,
    {_APPS: (Requirement("siteConfig.remoteDebuggingEnabled", ("false",)),)},
    ("uae-ia:T5.2.2", "iso27001:A.8.9", "nist-800-207:6"),
    "Leave siteConfig.remoteDebuggingEnabled out, or set it to false.",
)


@rule(
    "zero-trust-azure-web-app-public",
    "Apps don't answer everybody",
    Severity.MEDIUM,
    _APPS | azure("web:StaticSite"),
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2"),
    "Set publicNetworkAccess to Disabled and add a private endpoint, or name who may connect in "
    "siteConfig.ipSecurityRestrictions.",
)
def web_app_public(resource: Resource, context: Context) -> Iterator[Finding]:
    """Open to everybody by default: https://learn.microsoft.com/azure/app-service/overview-access-
    restrictions. As soon as one restriction allows somebody, all others are denied."""
    switches = [resource.get(each) for each in ("publicNetworkAccess",
                                               "siteConfig.publicNetworkAccess")]  # fmt: skip
    if any(scalar(each) == "disabled" for each in switches):
        return
    default = resource.get("siteConfig.ipSecurityRestrictionsDefaultAction")
    restrictions = items(resource.get("siteConfig.ipSecurityRestrictions"))
    if scalar(default) == "deny" or any(_narrows(each) for each in restrictions):
        return
    if resource.get("hostingEnvironmentProfile") is not ABSENT:
        return  # the environment decides, and is judged itself
    path = "publicNetworkAccess"
    if any(is_unknown(each) for each in (*switches, default, *restrictions)):
        yield indeterminate(path, "whether the app answers everybody can't be seen")
    else:
        yield violation(path, "nothing is restricted, so that the app answers everybody")


def _narrows(restriction: Any) -> bool:
    """Whether it is for somebody in particular: a range, a subnet, a service tag."""
    if is_unknown(restriction):
        return False
    subnet = get(restriction, "vnetSubnetResourceId")
    address = get(restriction, "ipAddress")
    allows = scalar(get(restriction, "action")) in {"", "allow"}
    if subnet is not ABSENT:
        return allows
    return bool(text(address)) and (is_open(address) != allows)


_AUTHENTICATION: Final = azure(
    "web:WebAppAuthSettings", "web:WebAppAuthSettingsSlot", "web:WebAppAuthSettingsV2",
    "web:WebAppAuthSettingsV2Slot",
)  # fmt: skip


@rule(
    "zero-trust-azure-web-app-sign-in",
    "Apps know who calls them",
    Severity.LOW,
    _APPS,
    SIGN_IN_CONTROLS,
    "Require client certificates (clientCertEnabled, clientCertMode Required), or add "
    "web.WebAppAuthSettingsV2 with requireAuthentication. Waive the rule for an app that checks "
    "tokens itself.",
)
def web_app_sign_in(resource: Resource, context: Context) -> Iterator[Finding]:
    """The platform lets every caller through by default:
    https://learn.microsoft.com/azure/app-service/overview-authentication-authorization."""
    enabled, mode = resource.get("clientCertEnabled"), resource.get("clientCertMode")
    if is_true(enabled) and scalar(mode) in {"", "required"}:
        return
    if context.stack is None:
        yield indeterminate("clientCertEnabled", "who may call the app isn't known yet")
        return
    if any(_asks(each) for each in children(context, resource, _AUTHENTICATION, "name")):
        return
    if is_unknown(enabled) or is_unknown(mode):
        yield indeterminate("clientCertEnabled", "who may call the app can't be seen")
    else:
        yield violation("clientCertEnabled", "the platform asks callers for nothing")


def _asks(settings: Resource) -> bool:
    return is_true(settings.get("enabled")) or is_true(
        settings.get("globalValidation.requireAuthentication")
    )


_PUBLISHING: Final = azure(
    "web:WebAppFtpAllowed", "web:WebAppFtpAllowedSlot", "web:WebAppScmAllowed",
    "web:WebAppScmAllowedSlot",
)  # fmt: skip
_basic_publishing = requirement_rule(
    "zero-trust-azure-basic-publishing",
    "Nobody publishes apps with a password",
    Severity.MEDIUM,
    {_PUBLISHING: (Requirement("allow", ("false",), "true"),)},
    SIGN_IN_CONTROLS,
    "Set allow to false; publish with an identity.",
)


_ORIGINS: Final = {
    **dict.fromkeys(_APPS, "siteConfig.cors"),
    **dict.fromkeys(azure("app:ContainerApp"), "configuration.ingress.corsPolicy"),
    **dict.fromkeys(
        azure("storage:BlobServiceProperties", "storage:FileServiceProperties",
              "storage:QueueServiceProperties", "storage:TableServiceProperties"),
        "cors.corsRules",
    ),
}  # fmt: skip


@rule(
    "zero-trust-azure-any-origin",
    "No page of any site calls a service in its reader's name",
    Severity.MEDIUM,
    frozenset(_ORIGINS),
    ("uae-ia:T5.2.2", "iso27001:A.8.3", "iso27001:A.8.9", "nist-800-207:6"),
    "Name the origins that need the service.",
)
def any_origin(resource: Resource, context: Context) -> Iterator[Finding]:
    """``*`` among the origins that are allowed."""
    holder = _ORIGINS.get(resource.kind, "")
    for path, each in entries(resource.get(holder), holder):
        for where, origin in entries(get(each, "allowedOrigins"), f"{path}.allowedOrigins"):
            if is_unknown(origin):
                yield indeterminate(where, "which origins are allowed can't be seen")
            elif text(origin) in {"*", "http://*", "https://*"}:
                yield violation(where, f"{text(origin)} allows pages of every site")


_identity = requirement_rule(
    "zero-trust-azure-managed-identity",
    "What runs has an identity of its own",
    Severity.LOW,
    {
        _APPS
        | azure(
            "app:ContainerApp",
            "automation:AutomationAccount",
            "containerinstance:ContainerGroup",
            "datafactory:Factory",
            "logic:Workflow",
        ): (
            Requirement(
                "identity.type",
                (
                    "SystemAssigned",
                    "SystemAssigned, UserAssigned",
                    "SystemAssigned,UserAssigned",
                    "UserAssigned",
                ),
                "none",
            ),
        )
    },
    SIGN_IN_CONTROLS,
    "Give it an identity, and the identity the roles that it needs, in place of passwords and "
    "keys.",
)


RULES: tuple[Rule, ...] = (
    metadata_tokens,
    metadata_hops,
    shell_key,
    task_host_rights,
    machine_passwords,
    _debugging,
    web_app_public,
    web_app_sign_in,
    _basic_publishing,
    any_origin,
    _identity,
)
