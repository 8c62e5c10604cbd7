"""What an inference tier needs on one cloud or in one mode only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from falaj.components.specification.refusals import Refusals

_INSTANCES_ONLY = ("int8", "machine", "machine_image")
_AWS_NEEDS = ("repository_id",)
_AZURE_NEEDS = ("log_destination_id", "keyring_secret_id", "certificate_id")
_AWS_ARNS = {"keyring_secret_id": "secretsmanager", "certificate_id": "acm"}
_VAULT_SECRET = re.compile(
    r"^/subscriptions/[^/]+/resourceGroups/[^/]+/providers/Microsoft\.KeyVault/vaults/[^/]+"
    r"/secrets/[^/]+$",
    re.IGNORECASE,
)


def check_needs(cloud: str, mode: object, args: Mapping[str, Any], refusals: Refusals) -> None:
    """Refuse the lack of what a cloud or mode needs, and what it has no use for."""
    if cloud == "aws":
        refusals.needed(args, _AWS_NEEDS, "on AWS")
        for argument, service in _AWS_ARNS.items():
            value: object = args.get(argument)
            start = f"arn:aws:{service}:{args.get('region')}:"
            if isinstance(value, str) and not value.startswith(start):
                refusals.add(argument, value, f"an ARN of the region: {start}…")
    else:
        refusals.needed(args, _AZURE_NEEDS, "on Azure")
        if args.get("boundary_id") is not None:
            refusals.say(
                "boundary_id", "permissions boundaries exist on AWS only; leave it out on Azure"
            )
        if args.get("log_days") is not None:
            refusals.say(
                "log_days",
                "the workspace decides on Azure; set retention_days of AuditTrail, and leave it "
                "out here",
            )
        for argument in ("keyring_secret_id", "certificate_id"):
            value: object = args.get(argument)
            if isinstance(value, str) and not _VAULT_SECRET.match(value):
                refusals.add(
                    argument, value, "the resource id of a Key Vault secret: /subscriptions/…"
                    "/providers/Microsoft.KeyVault/vaults/NAME/secrets/NAME",
                )  # fmt: skip
    if mode == "serverless":
        for argument in _INSTANCES_ONLY:
            if args.get(argument) is not None:
                refusals.say(
                    argument,
                    f"given {args[argument]!r}, but mode is 'serverless', where the cloud picks "
                    "the machine; leave it out, or set mode to 'instances'",
                )
