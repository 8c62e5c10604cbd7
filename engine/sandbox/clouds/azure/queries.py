"""The queries (invokes) that are answered."""

from __future__ import annotations

from engine.sandbox.clouds.azure import invented
from engine.sandbox.clouds.model import Properties, World


def answer(token: str, args: Properties, config: Properties, world: World) -> Properties:
    """The answer to a query.

    Raises:
        LookupError: the query isn't known, or Azure would refuse to answer it.
    """
    del args, config, world
    if token == "azure-native:authorization:getClientConfig":  # noqa: S105 - no password
        return {
            "clientId": invented.CLIENT,
            "objectId": invented.PRINCIPAL,
            "subscriptionId": invented.SUBSCRIPTION,
            "tenantId": invented.TENANT,
        }
    raise LookupError(f"the sandbox has no answer to the query {token}")
