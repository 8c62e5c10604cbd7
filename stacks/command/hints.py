"""What to do about refusals whose own words don't say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from falaj.engine import backend
from falaj.stacks.command.project import StackFile

_HINTS: Final[Mapping[str, str]] = {
    # github.com/hashicorp/terraform-provider-aws/issues/49247: also where its role may use the
    # key, but EKS doesn't know of it yet, which no try of the provider's own bridges.
    r"InvalidParameterException: Access denied to KMS key": (
        "EKS may not use the key of the cluster's secrets. Just after its role or the key were "
        "made: run this again in a minute. If it stays: the caller needs kms:CreateGrant and "
        "kms:DescribeKey on that key, from the key's policy and from its own, without the "
        "condition kms:GrantIsForAWSResource"
    ),
}


def hints(printed: str) -> list[str]:
    """What to do about each refusal that stands in what the engine printed."""
    return [hint for pattern, hint in _HINTS.items() if re.search(pattern, printed)]


def passphrase_hint(printed: str, stack: StackFile, backend_url: str) -> str | None:
    """Which line a stack's file lacks, where a passphrase doesn't fit and its state has another.

    Args:
        printed: what the engine printed.
        stack: its file has a salt.
        backend_url: where its state is.
    """
    if "incorrect passphrase" not in printed:
        return None
    salt = backend.salt_of(backend_url, stack.project.name, stack.name)
    if salt is None or salt == stack.salt:
        return None
    return (
        f"the salt in {stack.shown_path} isn't that of the stack's state: made with a passphrase "
        "each, none fits both. If the file was copied, or had its line replaced, give it that of "
        "the state:\n"
        f"  encryptionsalt: {salt}\n"
        "values in the file that were encrypted under the other salt have to be set again"
    )
