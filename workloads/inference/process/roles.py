"""What a worker's process is there for."""

from typing import Final

SERVER: Final = "server"
"""For requests of clients."""
SHADOW: Final = "shadow"
"""For copies of them."""
CANDIDATE: Final = "candidate"
"""For those that servers pass on."""
