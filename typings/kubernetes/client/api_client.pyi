from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject

class ApiClient:
    configuration: Configuration
    rest_client: RESTClientObject

    def __init__(self, configuration: Configuration | None = None) -> None: ...
    def close(self) -> None: ...
