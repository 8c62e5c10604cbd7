"""Finds a container by what it is for."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi

from falaj.components.azure._ids import resource_id

_CONTAINER = "Microsoft.Storage/storageAccounts/blobServices/containers"


def bucket_id(ids: pulumi.Input[dict[str, str]], purpose: str) -> pulumi.Output[str]:
    """Id of the container of a purpose.

    Raises:
        pulumi.RunError: (in the output) the store has none.
    """

    def found(known: Mapping[str, str]) -> str:
        if purpose not in known:
            raise pulumi.RunError(
                f"bucket_ids: has no {purpose!r}, only {', '.join(sorted(known)) or 'nothing'}; "
                f"keep {purpose!r} among the store's buckets, or give nobody the duty that uses it"
            )
        return known[purpose]

    return pulumi.Output.from_input(ids).apply(found)


def store_id(bucket: pulumi.Input[str]) -> pulumi.Output[str]:
    """Id of the storage account of a container. Raises IdError, in the output."""
    return pulumi.Output.from_input(bucket).apply(
        lambda text: resource_id(text, _CONTAINER).parent
    )
