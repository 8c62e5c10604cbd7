"""What extends the API server: in the cluster, or in the country; and verified.

Policies and their bindings are no part of it: the API server asks no policy of this kind about
them, so that nobody can lock everybody out. Rights on them are what protects them (`rights`).
"""

from falaj.components.kubernetes.admission.expressions import is_own_host, when
from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

_REACH = "services of the cluster, hosts of one's own networks or of the country's regions"


def policies(home: Home) -> tuple[Policy, ...]:
    """Webhooks, conversions of custom kinds, and servers of further APIs."""
    hosts = 'w.?clientConfig.?url.orValue("")'
    return (
        Policy(
            "webhooks",
            (
                Target(
                    "admissionregistration.k8s.io", "v1",
                    ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
                ),
            ),
            (_sent(home, f"object.?webhooks.orValue([]).map(w, {hosts})"),),
        ),
        Policy(
            "conversions",
            (Target("apiextensions.k8s.io", "v1", ("customresourcedefinitions",)),),
            (_sent(
                home,
                '[object.spec.?conversion.?webhook.?clientConfig.?url.orValue("")]',
            ),),
        ),
        Policy(
            "api-services",
            (Target("apiregistration.k8s.io", "v1", ("apiservices",)),),
            (
                Check(
                    "kubernetes-api-service-tls",
                    # The metrics server of the clouds has a certificate of its own making.
                    when(
                        "object.spec.?insecureSkipTLSVerify.orValue(false) && "
                        'object.spec.?service.?namespace.orValue("") != "kube-system"',
                        "object.metadata.name",
                    ),
                    "the server of an API isn't verified", "caBundle",
                    "set caBundle and remove insecureSkipTLSVerify",
                ),
            ),
        ),
    )  # fmt: skip


def _sent(home: Home, urls: str) -> Check:
    host = "url(u).getHostname()"
    return Check(
        "kubernetes-webhook-host",
        f'{urls}.filter(u, u != "" && !(isURL(u) && '
        f"{is_own_host(host, home.hosts_pattern, home.networks)}))",
        "objects, secrets among them, would be sent to",
        _REACH,
        "name a service of the cluster in clientConfig",
    )
