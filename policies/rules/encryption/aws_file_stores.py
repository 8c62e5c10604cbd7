"""AWS file systems, gateways, backups and desktops: where their data is encrypted, and by whom.

Defaults are those that the types' own documentation states (pulumi-aws 7.51) unless a line says
otherwise.
"""

from __future__ import annotations

from typing import Final

from falaj.policies.rules.encryption.table import Reader, State, Stores, readers

#: Without one's own key, gateways store with the key of S3.
_GATEWAY: Final[dict[str, State]] = {"true": "customer key", "false": "service key"}
_TABLES: Final[dict[str, State]] = {"aes256": "service key", "aws:kms": "customer key"}

FILE_STORES: Final = (
    Stores("aws:efs/fileSystem:FileSystem", "kmsKeyId", "encrypted", "none"),
    Stores("aws:efs/replicationConfiguration:ReplicationConfiguration", "kmsKeyId",
           parts="destination", copies=("fileSystemId",)),
    Stores("aws:fsx/lustreFileSystem:LustreFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/windowsFileSystem:WindowsFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/openZfsFileSystem:OpenZfsFileSystem", "kmsKeyId", copies=("backupId",)),
    Stores("aws:fsx/ontapFileSystem:OntapFileSystem", "kmsKeyId"),
    Stores("aws:fsx/fileCache:FileCache", "kmsKeyId"),
    Stores("aws:s3/filesFileSystem:FilesFileSystem", "kmsKeyId"),
    Stores("aws:backup/vault:Vault", "kmsKeyArn"),
    Stores("aws:backup/logicallyAirGappedVault:LogicallyAirGappedVault", "encryptionKeyArn"),
    Stores("aws:storagegateway/nfsFileShare:NfsFileShare", "kmsKeyArn", mode="kmsEncrypted",
           modes=_GATEWAY),
    Stores("aws:storagegateway/smbFileShare:SmbFileShare", "kmsKeyArn", mode="kmsEncrypted",
           modes=_GATEWAY),
    Stores("aws:storagegateway/cachesIscsiVolume:CachesIscsiVolume", "kmsKey",
           mode="kmsEncrypted", modes=_GATEWAY),
    Stores("aws:storagegateway/storedIscsiVolume:StoredIscsiVolume", "kmsKey",
           mode="kmsEncrypted", modes=_GATEWAY),
    Stores("aws:s3tables/tableBucket:TableBucket", "encryptionConfiguration.kmsKeyArn",
           mode="encryptionConfiguration.sseAlgorithm", modes=_TABLES),
    # Tables take on their bucket's encryption unless they name their own.
    Stores("aws:s3tables/table:Table", "encryptionConfiguration.kmsKeyArn",
           mode="encryptionConfiguration.sseAlgorithm", modes=_TABLES,
           when="encryptionConfiguration"),
    Stores("aws:s3/vectorsVectorBucket:VectorsVectorBucket", "encryptionConfigurations.kmsKeyArn",
           mode="encryptionConfigurations.sseType", modes=_TABLES),
    Stores("aws:s3/vectorsIndex:VectorsIndex", "encryptionConfigurations.kmsKeyArn",
           mode="encryptionConfigurations.sseType", modes=_TABLES,
           when="encryptionConfigurations"),
    # Takes no customer's key, and is always encrypted:
    # https://docs.aws.amazon.com/amazonglacier/latest/dev/DataEncryption.html
    Stores("aws:glacier/vault:Vault"),
    # Takes no customer's key: https://docs.aws.amazon.com/lightsail/latest/userguide/
    # security_data-protection.html
    Stores("aws:lightsail/bucket:Bucket"),
    Stores("aws:lightsail/database:Database"),
    Stores("aws:lightsail/disk:Disk"),
    Stores("aws:drs/replicationConfigurationTemplate:ReplicationConfigurationTemplate",
           "ebsEncryptionKeyArn", mode="ebsEncryption",
           modes={"default": "service key", "none": "none"}),
    # The caches of APIs take no customer's key, only encryption, and that is off by default:
    # https://docs.aws.amazon.com/apigateway/latest/developerguide/api-gateway-caching.html
    Stores("aws:apigateway/methodSettings:MethodSettings", "", "settings.cacheDataEncrypted",
           "none", when="settings.cachingEnabled"),
    Stores("aws:appsync/apiCache:ApiCache", "", "atRestEncryptionEnabled", "none"),
    Stores("aws:location/geofenceCollection:GeofenceCollection", "kmsKeyId"),
    Stores("aws:location/tracker:Tracker", "kmsKeyId"),
    Stores("aws:m2/application:Application", "kmsKeyId"),
    Stores("aws:m2/environment:Environment", "kmsKeyId"),
    Stores("aws:workspaces/workspace:Workspace", "volumeEncryptionKey",
           "rootVolumeEncryptionEnabled", "none"),
    Stores("aws:workspaces/workspace:Workspace", "volumeEncryptionKey",
           "userVolumeEncryptionEnabled", "none"),
    *(
        Stores(f"aws:workspacesweb/{name[0].lower()}{name[1:]}:{name}", "customerManagedKey")
        for name in ("BrowserSettings", "DataProtectionSettings", "IpAccessSettings", "Portal",
                     "SessionLogger", "UserSettings")
    ),
)  # fmt: skip

READERS: Final[dict[str, tuple[Reader, ...]]] = readers(FILE_STORES)
