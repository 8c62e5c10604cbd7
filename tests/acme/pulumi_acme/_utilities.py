"""Where the generator's SDKs tell the runtime of their classes."""


def register(*, resource_modules: str) -> None:
    """Nothing here is read back from a state."""
