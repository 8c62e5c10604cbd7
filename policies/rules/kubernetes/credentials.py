"""Credentials of programs: tokens only where needed, short-lived, and never in plain settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    REDACTED,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    format_path,
    get,
    is_false,
    is_true,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Level,
    Manifest,
    all_manifests,
    is_system,
    kinds,
    manifests,
)
from falaj.policies.reading.pods import Container, Pod, each_container, each_pod
from falaj.wire.documents import is_mapping

_CONTROLS: Final = ("iso27001:A.8.5", "iso27001:A.5.16", "uae-ia:T5.2.2", "nist-800-207:3")
_AUTOMOUNT: Final = "automountServiceAccountToken"


@rule(
    "kubernetes-token-mount",
    "Pods get a token of the cluster only where they need one",
    Severity.MEDIUM,
    ANY_OBJECT,
    _CONTROLS,
    f"Set {_AUTOMOUNT} to false on the pod or its service account. Where the program calls the "
    "cluster, give it a service account of its own with a role, and set it to true.",
)
@each_pod(Level.RESTRICTED)
def token_mount(pod: Pod, context: Context) -> Iterator[Finding]:
    """The pod or its account says no, or the pod says yes and its own account has a role."""
    value = pod.get(_AUTOMOUNT)
    if is_false(value) or (value is ABSENT and pod.is_partial):
        return
    if is_unknown(value):
        yield pod.indeterminate(_AUTOMOUNT, f"whether a token is mounted {value.reason}")
    elif context.stack is None:
        yield pod.indeterminate(
            _AUTOMOUNT, "whether its service account refuses or needs a token is seen with the "
            "whole stack only"
        )  # fmt: skip
    elif is_true(value):
        if not _has_role(pod, context.stack):
            yield pod.violation(
                _AUTOMOUNT, "a token is mounted, and no role of this stack is for its account"
            )
    elif not _account_refuses(pod, context.stack):
        yield pod.violation(
            _AUTOMOUNT, f"{_AUTOMOUNT} isn't set on the pod or its account, which is true"
        )


def _account(pod: Pod) -> Any:
    for key in ("serviceAccountName", "serviceAccount"):
        if (value := pod.get(key)) is not ABSENT and value != "":
            return value
    return "default"


def _matches(pod: Pod, stack: Stack) -> list[Manifest]:
    """The service accounts of the stack that a pod has, or was made from."""
    name, namespace = _account(pod), pod.manifest.namespace
    found = [
        each for each in all_manifests(stack) if each.kind == "ServiceAccount" and not each.group
    ]
    if not is_unknown(name):
        return [
            each
            for each in found
            if name in (each.name, get(each.resource.outputs, "metadata.name"))
            and (
                is_unknown(namespace) or is_unknown(each.namespace) or namespace == each.namespace
            )
        ]
    urns = {urn for each in pod.manifest.resource.dependencies.values() for urn in each}
    return [each for each in found if each.resource.urn in urns]


def _account_refuses(pod: Pod, stack: Stack) -> bool:
    accounts = _matches(pod, stack)
    return bool(accounts) and all(is_false(each.get(_AUTOMOUNT)) for each in accounts)


def _has_role(pod: Pod, stack: Stack) -> bool:
    name = _account(pod)
    if name == "default":
        return False
    accounts = {each.resource.urn for each in _matches(pod, stack)}
    for each in all_manifests(stack):
        if each.kind not in {"RoleBinding", "ClusterRoleBinding"}:
            continue
        if any(
            text(get(one, "kind")) == "ServiceAccount" and not is_unknown(name)
            and get(one, "name") == name
            for one in items(each.get("subjects"))
        ):  # fmt: skip
            return True
        if accounts & {urn for urns in each.resource.dependencies.values() for urn in urns}:
            return True
    return False


@rule(
    "kubernetes-default-account-token",
    "The default service account gives out no tokens",
    Severity.MEDIUM,
    kinds("core:ServiceAccount"),
    _CONTROLS,
    f"Set {_AUTOMOUNT} to false on the default service account.",
)
def default_account_token(resource: Resource, context: Context) -> Iterator[Finding]:
    """Pods that name no account get no token."""
    for manifest in manifests(resource):
        if manifest.kind != "ServiceAccount" or manifest.group or manifest.name != "default":
            continue
        value = manifest.get(_AUTOMOUNT)
        if is_unknown(value):
            yield manifest.indeterminate(_AUTOMOUNT, f"whether it gives tokens {value.reason}")
        elif not is_false(value) and not is_system(manifest.namespace):
            given = "isn't set, which is true" if value is ABSENT else "is true"
            yield manifest.violation(_AUTOMOUNT, f"{_AUTOMOUNT} {given}")


@rule(
    "kubernetes-long-lived-token",
    "Tokens of service accounts expire",
    Severity.HIGH,
    kinds("core:Secret"),
    _CONTROLS,
    "Remove the secret. Use projected tokens, or the TokenRequest API, with an expiry.",
)
def long_lived_token(resource: Resource, context: Context) -> Iterator[Finding]:
    """No secret is a token that is valid until it is deleted."""
    for manifest in manifests(resource):
        kind = manifest.get("type")
        if manifest.kind != "Secret" or manifest.group:
            continue
        if is_unknown(kind):
            yield manifest.indeterminate("type", f"what kind of secret it is {kind.reason}")
        elif text(kind) == "kubernetes.io/service-account-token":
            yield manifest.violation("type", "the token of a service account never expires")


@rule(
    "kubernetes-secret-in-env",
    "Programs read secrets from files",
    Severity.LOW,
    ANY_OBJECT,
    ("iso27001:A.8.12", "iso27001:A.8.24"),
    "Mount the secret as a volume and name its file. Settings are seen by every child process and "
    "in crash reports.",
)
@each_container(Level.RESTRICTED)
def secret_in_env(container: Container, context: Context) -> Iterator[Finding]:
    """No setting comes from a secret."""
    for index, each in enumerate(items(container.get("env"))):
        if get(each, "valueFrom.secretKeyRef") is not ABSENT:
            path = f"env[{index}].valueFrom.secretKeyRef"
            yield container.violation(path, "a secret becomes a setting of the process")
    for index, each in enumerate(items(container.get("envFrom"))):
        if get(each, "secretRef") is not ABSENT:
            yield container.violation(
                f"envFrom[{index}].secretRef", "a whole secret becomes settings of the process"
            )


_SECRET: Final = re.compile(
    r"(?:.*_)?(?:\w*PASSWORD|PASSWD|MYSQL_PWD|REDISCLI_AUTH|PASSPHRASE|SECRET|SECRET_KEY|SECRET_ACCESS_KEY|TOKEN|API_?KEY|"
    r"PRIVATE_KEY|ACCOUNT_KEY|CONNECTION_STRING|CREDENTIALS?)",
    re.I,
)
_DUMMY: Final = frozenset({
    "", "none", "dummy", "empty", "unused", "not-needed", "n/a", "na", "-", "placeholder", "true",
    "false", "null", "yes", "no",
})  # fmt: skip
#: Options and entries of maps that hold a secret; those that end in "secret" name one.
_GIVEN: Final = re.compile(
    r"(?:.*_)?(?:\w*PASSWORD|PASSWD|PASSPHRASE|TOKEN|API_?KEY|SECRET_KEY|SECRET_ACCESS_KEY)", re.I
)
_OPTION: Final = re.compile(r"--?([\w.-]+)=(.+)", re.S)
_REFERENCE: Final = re.compile(r"\$|/|https?://|\{\{|<")
_URL_PASSWORD: Final = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/@:]*:([^\s/@]+)@", re.I)


def _is_given(value: object) -> bool:
    """Whether a text is the secret itself, and no reference to it."""
    return text(value).lower() not in _DUMMY and not _REFERENCE.match(text(value))


def _has_password(value: object) -> bool:
    """Whether a text has a URL with a password in it."""
    return any(_is_given(found[1]) for found in _URL_PASSWORD.finditer(text(value)))


@each_container()
def _in_container(container: Container, context: Context) -> Iterator[Finding]:
    for index, each in enumerate(items(container.get("env"))):
        name, value = text(get(each, "name")), get(each, "value")
        path = f"env[{index}].value"
        if _has_password(value):
            yield container.violation(path, f"{name} is a URL with a password in it")
        elif not _SECRET.fullmatch(name) or value is ABSENT:
            continue
        elif value is REDACTED:
            yield container.violation(path, f"{name} is a secret that is written into the object")
        elif is_unknown(value):
            yield container.indeterminate(path, f"whether {name} is a secret {value.reason}")
        elif _is_given(value):
            yield container.violation(path, f"{name} has its value in the object")
    for key in ("args", "command"):
        for index, each in enumerate(items(container.get(key))):
            option = _OPTION.fullmatch(text(each))
            named = option and _GIVEN.fullmatch(option[1].replace("-", "_"))
            if _has_password(each) or (option and named and _is_given(option[2])):
                yield container.violation(f"{key}[{index}]", "the argument has a secret in it")


def _in_map(manifest: Manifest) -> Iterator[Finding]:
    """Entries that become settings: of one line, for files may show what one would write."""
    data = manifest.get("data")
    if manifest.kind != "ConfigMap" or manifest.group or not is_mapping(data):
        return
    for key, value in data.items():
        is_line = bool(text(value)) and "\n" not in text(value)
        named = _GIVEN.fullmatch(str(key)) and _is_given(value)
        if is_line and (named or _has_password(value)):
            yield manifest.violation(format_path(("data", str(key))), "the map has a secret in it")


@rule(
    "kubernetes-secret-in-plain",
    "Secrets aren't written into the settings of containers",
    Severity.HIGH,
    ANY_OBJECT,
    ("iso27001:A.8.12", "iso27001:A.8.24", "uae-ia:T7.4.2", "pdpl:20"),
    "Put the value into a Secret, or fetch it by the External Secrets Operator, and mount it.",
)
def secret_in_plain(resource: Resource, context: Context) -> Iterator[Finding]:
    """No setting, argument or map has a password, a token or a key in it."""
    yield from _in_container(resource, context)
    for manifest in manifests(resource):
        yield from _in_map(manifest)


RULES: tuple[Rule, ...] = (
    token_mount,
    default_account_token,
    long_lived_token,
    secret_in_env,
    secret_in_plain,
)
