"""Secrets on AWS that stand in plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    get,
    indeterminate,
    leaves,
    rule,
    scalar,
    select,
    text,
    violation,
)
from falaj.policies.model.values import Unknown
from falaj.policies.reading.encoded import texts_in

# Secrets that stand in plain sight on AWS: in parameters, environments and start scripts.
#
# Only what is certain is said: private keys in PEM, AWS access keys, and parameters whose own name
# says that they hold a secret. No value is ever repeated.

_PARAMETER: Final = "aws:ssm/parameter:Parameter"
#: How the last part of a name ends that holds a secret; not what merely tells of one, as
#: ``password-length`` or ``secret-arn`` do.
_SECRET_NAME: Final = re.compile(
    r"(^|[/_.-])(\w*(password|passwd|pwd|passphrase)|(\w*[_-])?(secret|token|api[_-]?key|"
    r"secret[_-]?key|access[_-]?key|private[_-]?key|credentials?))$",
    re.IGNORECASE,
)
_PRIVATE_KEY: Final = re.compile(r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----")
#: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html
_ACCESS_KEY: Final = re.compile(r"(?<![A-Z0-9])(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Z0-9])")
#: The other half of an access key, where its name stands before it.
_SECRET_KEY: Final = re.compile(
    r"secret[_-]?(?:access[_-]?)?key\W{1,5}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+])", re.IGNORECASE
)
_LONGEST: Final = 200_000
#: Properties that anybody who may read the resource's settings can read.
_READABLE: Final = {
    "aws:ec2/instance:Instance": ("userData", "userDataBase64"),
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": ("userData", "userDataBase64"),
    "aws:ec2/launchTemplate:LaunchTemplate": ("userData",),
    "aws:ec2/launchConfiguration:LaunchConfiguration": ("userData", "userDataBase64"),
    "aws:lambda/function:Function": ("environment.variables",),
    "aws:ecs/taskDefinition:TaskDefinition": ("containerDefinitions",),
    "aws:codebuild/project:Project": ("environment.environmentVariables",),
    "aws:batch/jobDefinition:JobDefinition": ("containerProperties",),
    "aws:apprunner/service:Service": (
        "sourceConfiguration.imageRepository.imageConfiguration.runtimeEnvironmentVariables",
    ),
    "aws:sagemaker/notebookInstanceLifecycleConfiguration:NotebookInstanceLifecycleConfiguration":
        ("onCreate", "onStart"),
    "aws:glue/job:Job": ("defaultArguments",),
    "aws:ssm/document:Document": ("content",),
}  # fmt: skip


@rule(
    "encryption-aws-secret-parameter",
    "Parameters that hold secrets are encrypted",
    Severity.HIGH,
    {_PARAMETER},
    ("iso27001:A.8.24", "uae-ia:T7.4.1", "pdpl:20", "gdpr:32"),
    "Give the parameter the type SecureString with a keyId of your own, or keep it in Secrets "
    "Manager.",
)
def secret_parameter(resource: Resource, context: Context) -> Iterator[Finding]:
    """A parameter that is named for a secret isn't kept in plain text."""
    name, kind = (get(resource.properties, each) for each in ("name", "type"))
    if not _SECRET_NAME.search(text(name).rstrip("/") or resource.name):
        return
    if isinstance(kind, Unknown):
        yield indeterminate("type", f"type {kind.reason}, and the name is that of a secret")
    elif scalar(kind) != "securestring":
        value = text(get(resource.properties, "value"))
        if not value.startswith("arn:"):
            why = f"type is {text(kind) or 'not given'}, and the name is that of a secret"
            yield violation("type", f"{why}; it must be SecureString")


def _kind_of_secret(name: str, value: Any) -> str:
    plain = text(value)[:_LONGEST]
    given = "\n".join((f"{name}={plain}", *texts_in(plain)))
    if _PRIVATE_KEY.search(given):
        return "a private key"
    return "an AWS access key" if _ACCESS_KEY.search(given) or _SECRET_KEY.search(given) else ""


@rule(
    "encryption-aws-key-material",
    "No private or access key stands in settings that can be read",
    Severity.CRITICAL,
    {*_READABLE, _PARAMETER},
    ("iso27001:A.8.24", "uae-ia:T7.4.2", "pdpl:20", "gdpr:32"),
    "Keep the key in Secrets Manager or KMS, let the workload fetch it by its role, and replace "
    "the key: it has been seen.",
)
def key_material(resource: Resource, context: Context) -> Iterator[Finding]:
    """Start scripts, environments and plain parameters hold no key's material."""
    paths = _READABLE.get(resource.kind, ())
    if resource.kind == _PARAMETER and scalar(get(resource.properties, "type")) != "securestring":
        paths = ("value", "insecureValue")
    for path in paths:
        for at, value in select(resource.properties, path):
            for inner, each in leaves(value):
                name = str(inner[-1]) if inner else ""
                if kind := _kind_of_secret(name, each):
                    tail = format_path(inner)
                    joint = "." if tail and not tail.startswith("[") else ""
                    yield violation(f"{at}{joint}{tail}", f"{kind} stands there in plain text")


RULES: tuple[Rule, ...] = (
    secret_parameter,
    key_material,
)
