"""AWS types whose encryption is a document: EMR's, OpenSearch Serverless's, Session Manager's."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import ABSENT, Resource, View, get, is_true, is_unknown, text
from falaj.policies.model.values import Unknown
from falaj.policies.rules.encryption.table import Part, Reader, read_key

EMR: Final = "aws:emr/securityConfiguration:SecurityConfiguration"
SERVERLESS: Final = "aws:opensearch/serverlessSecurityPolicy:ServerlessSecurityPolicy"
_LONGEST: Final = 1_000_000


def document(value: Any) -> Any:
    """A JSON document as its mapping; an Unknown as itself, and anything else as ABSENT."""
    if isinstance(value, Unknown | Mapping):
        return value
    try:
        found = json.loads(value) if isinstance(value, str) and len(value) <= _LONGEST else ABSENT
    except (ValueError, RecursionError):
        return ABSENT
    return found if isinstance(found, Mapping) else ABSENT


def _emr(resource: Resource, view: View) -> Iterator[Part]:
    """At rest: objects in S3 and the machines' disks, each with its own provider of keys.

    https://docs.aws.amazon.com/emr/latest/ManagementGuide/emr-create-security-configuration.html
    """
    given = document(get(resource.properties, "configuration"))
    if is_unknown(given):
        yield Part("unknown", "configuration", "configuration", f"configuration {given.reason}")
        return
    settings = get(given, "EncryptionConfiguration")
    if not is_true(get(settings, "EnableAtRestEncryption")):
        why = "EnableAtRestEncryption isn't true, so nothing is encrypted"
        yield Part("none", "configuration", "configuration", why)
        return
    at_rest = get(settings, "AtRestEncryptionConfiguration")
    objects = get(at_rest, "S3EncryptionConfiguration")
    mode = text(get(objects, "EncryptionMode")).upper()
    if mode in {"CSE-CUSTOM"}:
        yield _said("customer key", "EncryptionMode is CSE-Custom, with keys of one's own")
    elif mode in {"SSE-KMS", "CSE-KMS"}:
        yield _key(resource, get(objects, "AwsKmsKey"), view, "objects in S3")
    else:
        why = f"EncryptionMode is {mode or 'not given'}, so S3's own key encrypts objects"
        yield _said("service key", why)
    disks = get(at_rest, "LocalDiskEncryptionConfiguration")
    provider = text(get(disks, "EncryptionKeyProviderType")).lower()
    if disks is ABSENT:
        yield _said("none", "LocalDiskEncryptionConfiguration isn't given: disks stay plain")
    elif provider == "custom":
        yield _said("customer key", "the machines' disks have a provider of keys of their own")
    else:
        yield _key(resource, get(disks, "AwsKmsKey"), view, "the machines' disks")


def _said(state: Any, why: str) -> Part:
    return Part(state, "configuration", "configuration", why)


def _key(resource: Resource, value: Any, view: View, what: str) -> Part:
    state, why = read_key(resource, "configuration", value, view)
    if state == "absent":
        return _said("service key", f"no AwsKmsKey is given for {what}")
    # Not to name a whole document as the key.
    why = f"the key for {what} {value.reason}" if isinstance(value, Unknown) else why
    return Part(state, "configuration", "configuration", why, text(value), surely=True)


def _collections(resource: Resource, view: View) -> Iterator[Part]:
    """The encryption policy of collections: AWS's key, or one's own.

    https://docs.aws.amazon.com/opensearch-service/latest/developerguide/serverless-encryption.html
    """
    if text(get(resource.properties, "type")).lower() == "network":
        return
    given = document(get(resource.properties, "policy"))
    if is_unknown(given):
        yield Part("unknown", "policy", "policy", f"policy {given.reason}", surely=True)
        return
    state, why = read_key(resource, "policy", get(given, "KmsARN"), view)
    if state == "absent" or is_true(get(given, "AWSOwnedKey")):
        yield Part("service key", "policy", "policy", "the policy names AWS's own key")
    else:
        key = text(get(given, "KmsARN"))
        yield Part(state, "policy", "policy", why, key, surely=True)


def _sessions(resource: Resource, view: View) -> Iterator[Part]:
    """What sessions with machines leave behind, in a bucket or a log group, and their key.

    https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-schema.html
    """
    kind = get(resource.properties, "documentType")
    if not is_unknown(kind) and text(kind).lower() != "session":
        return
    content = get(resource.properties, "content")
    given = document(content)
    if given is ABSENT or is_unknown(given):
        said = given.reason if isinstance(given, Unknown) else "is no JSON"
        yield Part("unknown", "content", "content", f"content {said}")
        return
    inputs = get(given, "inputs")
    for kept, switch in (
        ("s3BucketName", "s3EncryptionEnabled"),
        ("cloudWatchLogGroupName", "cloudWatchEncryptionEnabled"),
    ):
        if text(get(inputs, kept)) and not is_true(get(inputs, switch)):
            yield Part("none", "content", "content", f"{switch} isn't true, so logs may be plain")
    state, why = read_key(resource, "content", get(inputs, "kmsKeyId"), view)
    if state == "absent":
        why = "no kmsKeyId is given, so sessions are encrypted by TLS alone"
        yield Part("service key", "content", "content", why)
    else:
        yield Part(state, "content", "content", why, text(get(inputs, "kmsKeyId")), surely=True)


READERS: Final[dict[str, tuple[Reader, ...]]] = {EMR: (_emr,), SERVERLESS: (_collections,)}
#: Sessions are logged, so they stand with logs.
SESSIONS: Final[dict[str, tuple[Reader, ...]]] = {"aws:ssm/document:Document": (_sessions,)}
