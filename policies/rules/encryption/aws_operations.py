"""AWS secrets, logs, trails, findings and networks' own data: what encrypts them.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from typing import Final

from falaj.policies.rules.encryption import aws_configured_stores
from falaj.policies.rules.encryption.table import Reader, State, Stores, readers

_FIREWALL: Final[dict[str, State]] = {
    "aws_owned_kms_key": "service key",
    "customer_kms": "customer key",
}
_ACCESS: Final[dict[str, State]] = {"false": "service key", "true": "customer key"}

SECRET_STORES: Final = (
    Stores("aws:secretsmanager/secret:Secret", "kmsKeyId"),
    Stores("aws:secretsmanager/secret:Secret", "kmsKeyId", parts="replicas"),
    Stores("aws:ssm/parameter:Parameter", "keyId", only=("type", ("securestring",))),
)  # fmt: skip
LOG_STORES: Final = (
    Stores("aws:cloudwatch/logGroup:LogGroup", "kmsKeyId"),
    Stores("aws:cloudwatch/logAnomalyDetector:LogAnomalyDetector", "kmsKeyId"),
    Stores("aws:cloudtrail/trail:Trail", "kmsKeyId"),
    Stores("aws:cloudtrail/eventDataStore:EventDataStore", "kmsKeyId"),
    # Deliveries take on their bucket's encryption unless they name a key.
    Stores("aws:cfg/deliveryChannel:DeliveryChannel", "s3KmsKeyArn", when="s3KmsKeyArn"),
    Stores("aws:xray/encryptionConfig:EncryptionConfig", "keyId", mode="type",
           modes={"none": "service key", "kms": "customer key"}),
    Stores("aws:amp/workspace:Workspace", "kmsKeyArn"),
    Stores("aws:grafana/workspace:Workspace", "kmsKeyId"),
    Stores("aws:guardduty/publishingDestination:PublishingDestination", "kmsKeyArn"),
    Stores("aws:macie2/classificationExportConfiguration:ClassificationExportConfiguration",
           "kmsKeyArn", parts="s3Destination"),
    Stores("aws:securityhub/connectorV2:ConnectorV2", "kmsKeyArn"),
    Stores("aws:devopsguru/serviceIntegration:ServiceIntegration",
           "kmsServerSideEncryption.kmsKeyId", mode="kmsServerSideEncryption.type",
           modes={"aws_owned_kms_key": "service key", "customer_managed_key": "customer key"}),
    Stores("aws:ssm/resourceDataSync:ResourceDataSync", "kmsKeyArn", parts="s3Destination",
           copies=("bucketName",)),
    Stores("aws:ssmincidents/replicationSet:ReplicationSet", "kmsKeyArn", parts="regions"),
    Stores("aws:appfabric/appBundle:AppBundle", "customerManagedKeyArn"),
    Stores("aws:resiliencehub/v2System:V2System", "kmsKeyId"),
    Stores("aws:observabilityadmin/s3TableIntegration:S3TableIntegration",
           "encryption.kmsKeyArn", mode="encryption.sseAlgorithm",
           modes={"aes256": "service key", "aws:kms": "customer key"}),
)  # fmt: skip
NETWORK_STORES: Final = (
    *(
        Stores(f"aws:networkfirewall/{name[0].lower()}{name[1:]}:{name}",
               f"{block}.keyId", mode=f"{block}.type", modes=_FIREWALL)
        for name, block in (
            ("Firewall", "encryptionConfiguration"),
            ("FirewallPolicy", "encryptionConfiguration"),
            ("RuleGroup", "encryptionConfiguration"),
            ("TlsInspectionConfiguration", "encryptionConfigurations"),
        )
    ),
    *(
        Stores(f"aws:verifiedaccess/{name[0].lower()}{name[1:]}:{name}", f"{block}.kmsKeyArn",
               mode=f"{block}.customerManagedKeyEnabled", modes=_ACCESS)
        for name, block in (
            ("Endpoint", "sseSpecification"),
            ("Group", "sseConfiguration"),
            ("TrustProvider", "sseSpecification"),
        )
    ),
)  # fmt: skip

SECRETS: Final[dict[str, tuple[Reader, ...]]] = readers(SECRET_STORES)
LOGS: Final[dict[str, tuple[Reader, ...]]] = {
    **readers(LOG_STORES),
    **aws_configured_stores.SESSIONS,
}
NETWORKS: Final[dict[str, tuple[Reader, ...]]] = readers(NETWORK_STORES)
#: Types of logs whose encryption is a document.
SESSIONS: Final = frozenset(aws_configured_stores.SESSIONS)
