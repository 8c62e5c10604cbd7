"""References that many types have in common."""

from __future__ import annotations

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.kinds import Reference


def vpc(path: str = "vpcId") -> Reference:
    """A VPC by its id; it can't go before what is in it."""
    return Reference(path, (t.VPC,))


def subnet(path: str = "subnetIds[]") -> Reference:
    """A subnet by its id; it can't go before what has an address in it."""
    return Reference(path, (t.SUBNET,))


def security_group(path: str = "securityGroupIds[]") -> Reference:
    """A security group by its id; it can't go while it is in use."""
    return Reference(path, (t.SECURITY_GROUP, t.DEFAULT_SECURITY_GROUP))


def route_table(path: str = "routeTableId") -> Reference:
    """A route table by its id."""
    return Reference(path, (t.ROUTE_TABLE, t.DEFAULT_ROUTE_TABLE))


def key(path: str = "kmsKeyId") -> Reference:
    """A key by its ARN, its id or an alias; deletion of a key asks nobody."""
    return Reference(path, (t.KEY, t.KEY_ALIAS), by=("arn", "keyId", "name"), holds=False)


def role(path: str = "roleArn", *, by: str = "arn", holds: bool = False) -> Reference:
    """An IAM role; a role goes even while services use it, but not with policies attached."""
    return Reference(path, (t.ROLE,), by=(by,), holds=holds, regional=False)


def bucket(path: str = "bucket") -> Reference:
    """A bucket by its name."""
    return Reference(path, (t.BUCKET,), by=("bucket",), holds=False)


def topic(path: str) -> Reference:
    """An SNS topic by its ARN."""
    return Reference(path, (t.TOPIC,), by=("arn",), holds=False)


def log_group(path: str) -> Reference:
    """A log group by its ARN."""
    return Reference(path, (t.LOG_GROUP,), by=("arn",), holds=False)


def cluster(path: str = "clusterName", *, holds: bool = False) -> Reference:
    """An EKS cluster by its name."""
    return Reference(path, (t.CLUSTER,), by=("name",), holds=holds)
