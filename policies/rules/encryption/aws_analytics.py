"""AWS analytics: what encrypts query results, catalogues, jobs' bookmarks and clusters' disks.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import Resource, View, get, text
from falaj.policies.rules.encryption import aws_configured_stores
from falaj.policies.rules.encryption.table import Part, Reader, State, Stores, readers

_RESULTS: Final[dict[str, State]] = {"sse_s3": "service key"}
_DISABLED: Final[dict[str, State]] = {
    "disabled": "none",
    "sse-s3": "service key",
    "sse-kms": "customer key",
    "cse-kms": "customer key",
    "sse-kms-with-service-role": "customer key",
}
_GLUE_CONFIGURATION: Final = frozenset({"aws:glue/securityConfiguration:SecurityConfiguration"})
_EMR_CONFIGURATION: Final = frozenset({"aws:emr/securityConfiguration:SecurityConfiguration"})
_GLUE: Final = "aws:glue/securityConfiguration:SecurityConfiguration"
_CATALOGUE: Final = "aws:glue/dataCatalogEncryptionSettings:DataCatalogEncryptionSettings"
_WITHOUT: Final = (
    "securityConfiguration isn't given, and without one a job's results, bookmarks and logs "
    "aren't encrypted by Glue"
)

ANALYTICS: Final = (
    Stores(_GLUE, "encryptionConfiguration.s3Encryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.s3Encryption.s3EncryptionMode", modes=_DISABLED),
    Stores(_GLUE, "encryptionConfiguration.cloudwatchEncryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.cloudwatchEncryption.cloudwatchEncryptionMode",
           modes=_DISABLED),
    Stores(_GLUE, "encryptionConfiguration.jobBookmarksEncryption.kmsKeyArn", default="none",
           mode="encryptionConfiguration.jobBookmarksEncryption.jobBookmarksEncryptionMode",
           modes=_DISABLED),
    Stores(_CATALOGUE, "dataCatalogEncryptionSettings.encryptionAtRest.sseAwsKmsKeyId",
           default="none", modes=_DISABLED,
           mode="dataCatalogEncryptionSettings.encryptionAtRest.catalogEncryptionMode"),
    Stores(_CATALOGUE, "dataCatalogEncryptionSettings.connectionPasswordEncryption.awsKmsKeyId",
           "dataCatalogEncryptionSettings.connectionPasswordEncryption"
           ".returnConnectionPasswordEncrypted", "none"),
    *(
        Stores(f"aws:glue/{name[0].lower()}{name[1:]}:{name}", "securityConfiguration",
               default="none", by=_GLUE_CONFIGURATION, note=_WITHOUT)
        for name in ("Job", "Crawler", "DevEndpoint")
    ),
    Stores("aws:emr/cluster:Cluster", "securityConfiguration", default="none",
           by=_EMR_CONFIGURATION,
           note="securityConfiguration isn't given, and without one EMR encrypts no disk"),
    Stores("aws:emr/cluster:Cluster", "logEncryptionKmsKeyId", when="logUri"),
    Stores("aws:emr/studio:Studio", "encryptionKeyArn"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.managedPersistenceMonitoringConfiguration",
           when="enabled"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.s3MonitoringConfiguration"),
    Stores("aws:emrserverless/application:Application", "encryptionKeyArn",
           parts="monitoringConfiguration.cloudwatchLoggingConfiguration", when="enabled"),
    Stores("aws:emrcontainers/jobTemplate:JobTemplate", "kmsKeyArn"),
    Stores("aws:datazone/domain:Domain", "kmsKeyIdentifier"),
    Stores("aws:quicksight/keyRegistration:KeyRegistration", "keyRegistrations.keyArn"),
    Stores("aws:securitylake/dataLake:DataLake", "encryptionConfigurations.kmsKeyId",
           parts="configuration"),
    Stores("aws:auditmanager/accountRegistration:AccountRegistration", "kmsKey"),
    Stores("aws:athena/workgroup:Workgroup",
           "configuration.managedQueryResultsConfiguration.encryptionConfiguration.kmsKey",
           when="configuration.managedQueryResultsConfiguration.enabled"),
    Stores("aws:athena/workgroup:Workgroup",
           "configuration.customerContentEncryptionConfiguration.kmsKey",
           when="configuration.customerContentEncryptionConfiguration"),
)  # fmt: skip

_ATHENA: Final = {
    "aws:athena/workgroup:Workgroup": (
        Stores("aws:athena/workgroup:Workgroup",
               "configuration.resultConfiguration.encryptionConfiguration.kmsKeyArn",
               mode="configuration.resultConfiguration.encryptionConfiguration.encryptionOption",
               modes=_RESULTS),
        "configuration.resultConfiguration.outputLocation",
    ),
    "aws:athena/database:Database": (
        Stores("aws:athena/database:Database", "encryptionConfiguration.kmsKey",
               mode="encryptionConfiguration.encryptionOption", modes=_RESULTS),
        "bucket",
    ),
}  # fmt: skip


def _athena(resource: Resource, view: View) -> Iterator[Part]:
    """Results go to a bucket: where nothing is set, the bucket's own encryption holds."""
    if get(resource.properties, "configuration.managedQueryResultsConfiguration.enabled") is True:
        return
    entry, location = _ATHENA[resource.kind]
    for part in entry.read(resource, view):
        if not part.given and _bucket_is_judged(resource, view, location):
            continue
        if not part.given and view.stack is None:
            why = f"{part.why}, unless the bucket at {location} says otherwise"
            yield Part("unknown", part.path, part.switch, why, surely=True, given=False)
        else:
            yield part


def _bucket_is_judged(resource: Resource, view: View, location: str) -> bool:
    """Whether results go to a bucket of the same stack, which is judged by itself."""
    if view.stack is None:
        return False
    named = text(get(resource.properties, location)).removeprefix("s3://").partition("/")[0]
    found = [*view.stack.called(named), *view.referred(resource, location)]
    return any(each.kind.startswith("aws:s3/bucket") for each in found)


READERS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(ANALYTICS),
    **aws_configured_stores.READERS,
}
#: Types whose encryption is a document.
DOCUMENTS: Final = frozenset(aws_configured_stores.READERS)
for _type in _ATHENA:
    READERS[_type] = (_athena, *READERS.get(_type, ()))
#: The entries that the reader above varies, for lists of what is known.
VARIED: Final = tuple(entry for entry, _ in _ATHENA.values())
