from collections.abc import Mapping
from typing import Any

from kubernetes.client import Configuration

class ConfigException(Exception): ...

def load_kube_config(
    config_file: str | None = None,
    context: str | None = None,
    client_configuration: Configuration | None = None,
    persist_config: bool = True,
) -> None: ...
def load_kube_config_from_dict(
    config_dict: Mapping[str, Any],
    context: str | None = None,
    client_configuration: Configuration | None = None,
    persist_config: bool = True,
) -> None: ...
