"""What the sandbox knows of AWS."""

from __future__ import annotations

from falaj.sandbox.clouds.aws.model import MODEL, AwsModel

__all__ = ["MODEL", "AwsModel"]
