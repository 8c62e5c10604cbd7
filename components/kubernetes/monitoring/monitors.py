"""What Prometheus reads of an add-on.

https://prometheus-operator.dev/docs/api-reference/api/
"""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.addon import PlatformSpec, Scrape

_API: Final = "monitoring.coreos.com/v1"


def monitor(spec: PlatformSpec, scrape: Scrape) -> Manifest:
    """A `PodMonitor`; a `ServiceMonitor` for metrics behind TLS and a login.

    It is in the add-on's namespace, where the certificate's secret is.
    """
    name = next(iter(scrape.labels.values()))
    selector = {"matchLabels": dict(scrape.labels)}
    if not scrape.certificate:
        port = {"portNumber" if isinstance(scrape.port, int) else "port": scrape.port}
        return {
            "apiVersion": _API,
            "kind": "PodMonitor",
            "metadata": spec.metadata(name, scrape.namespace),
            "spec": {"selector": selector, "podMetricsEndpoints": [{**port, "path": scrape.path}]},
        }
    authority = {"secret": {"name": scrape.certificate, "key": "ca.crt"}}
    endpoint: dict[str, Any] = {
        "port": scrape.port,
        "path": scrape.path,
        "scheme": "https",
        "bearerTokenFile": "/var/run/secrets/kubernetes.io/serviceaccount/token",
        "tlsConfig": {"ca": authority, "serverName": scrape.server},
    }
    return {
        "apiVersion": _API,
        "kind": "ServiceMonitor",
        "metadata": spec.metadata(name, scrape.namespace),
        "spec": {"selector": selector, "endpoints": [endpoint]},
    }
