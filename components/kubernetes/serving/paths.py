"""Where things lie in a replica's file system."""

from typing import Final

BASE: Final = "/run/falaj"
SECRET: Final = f"{BASE}/secret"
"""The packed key ring, as the cluster hands it over; for the first container only."""
PACKED_KEYS: Final = "keyring.tar"
KEYS: Final = f"{BASE}/keys"
"""In memory: the key ring, with the file modes that it insists on."""
KEY_RING: Final = f"{KEYS}/keyring"
TLS: Final = f"{BASE}/tls"
TOKENS: Final = f"{BASE}/tokens"
TOKEN_KEYS: Final = "tokens.jwks.json"  # noqa: S105 - public keys, and a file name
WORK: Final = f"{BASE}/work"
"""The sealed package and what the server writes."""
REGISTRY: Final = f"{WORK}/registry"
CONFIG: Final = f"{WORK}/service.json"
STATE: Final = f"{WORK}/state.json"
LOGS: Final = f"{BASE}/logs"
PACKAGE: Final = "/package"
"""Where the sealed package comes from; for the container that checks it only."""
MODELS: Final = f"{BASE}/models"
"""In memory, in the GPU tier: Triton's repository of models."""
