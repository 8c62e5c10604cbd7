"""ARNs that are known before anything runs: put together here only, always of one region."""

from __future__ import annotations

#: Accounts of the commercial clouds; the country has none of another partition.
PARTITION = "aws"


def arn(service: str, region: str, account: str, resource: str) -> str:
    """The ARN of a regional resource, such as ``log-group:/falaj/acme`` of ``logs``."""
    return f"arn:{PARTITION}:{service}:{region}:{account}:{resource}"


def iam_arn(account: str, resource: str) -> str:
    """The ARN of a principal or policy, such as ``role/acme-trainer``; IAM knows no region."""
    return arn("iam", "", account, resource)


def bucket_arn(bucket: str, key: str = "") -> str:
    """The ARN of a bucket, or of objects in it (``*``); S3 writes neither region nor account."""
    return arn("s3", "", "", f"{bucket}/{key}" if key else bucket)


def service_host(service: str, region: str) -> str:
    """The host that stands for a service in conditions: ``s3.me-central-1.amazonaws.com``."""
    return f"{service}.{region}.amazonaws.com"


def role_of(principal: str) -> str:
    """Name of the role in ``arn:aws:iam::…:role/path/name``."""
    return principal.rpartition("/")[2]
