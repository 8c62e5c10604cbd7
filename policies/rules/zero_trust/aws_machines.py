"""Machines and containers on AWS: sessions for metadata, no keys for shells, no host's rights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_true,
    is_unknown,
    items,
    number,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.types import aws, aws_type

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
def metadata_tokens(resource: Resource, view: View) -> Iterator[Finding]:
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
def metadata_hops(resource: Resource, view: View) -> Iterator[Finding]:
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
def shell_key(resource: Resource, view: View) -> Iterator[Finding]:
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
def task_host_rights(resource: Resource, view: View) -> Iterator[Finding]:
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
        elif isinstance(container, Mapping):
            value = container.get("privileged")
            if is_unknown(value):
                yield indeterminate(path, "whether it is privileged can't be known yet")
            elif is_true(value):
                yield violation(path, "a container is privileged, and with it owns its host")


RULES: tuple[Rule, ...] = (metadata_tokens, metadata_hops, shell_key, task_host_rights)
