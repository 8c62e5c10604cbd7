"""Secrets from outside: each tenant's under its own name."""

from falaj.components.kubernetes._placed import TENANT_LABEL
from falaj.components.kubernetes.admission.expressions import text
from falaj.components.kubernetes.admission.home import Home
from falaj.components.kubernetes.admission.policy import Check, Policy, Target


def policies(home: Home) -> tuple[Policy, ...]:
    """What external secrets of a tenant's namespace read.

    One store serves the namespaces of every tenant, so that the path of a secret is what keeps
    them apart. https://external-secrets.io/latest/api/externalsecret/
    """
    tenant = f'namespaceObject.metadata.?labels[?{text(TENANT_LABEL)}].orValue("")'
    # Conditions of a policy don't see the namespace: the check itself asks for its tenant.
    keys = (
        'object.?spec.?data.orValue([]).map(d, d.?remoteRef.?key.orValue("")) + '
        "object.?spec.?dataFrom.orValue([]).filter(d, has(d.extract))"
        '.map(d, d.extract.?key.orValue(""))'
    )
    own = 'k.startsWith(variables.tenant + "/") || k.startsWith(variables.tenant + "-")'
    found = 'object.?spec.?dataFrom.orValue([]).filter(d, has(d.find)).map(d, "all that is found")'
    return (
        Policy(
            "external-secrets",
            (Target("external-secrets.io", "v1", ("externalsecrets",)),),
            (
                Check(
                    "cluster-secret-path",
                    f'variables.tenant == "" ? [] : variables.keys.filter(k, !({own})) + {found}',
                    "secrets that aren't the tenant's are read",
                    "<tenant>/… and <tenant>-…, each by its name",
                    "name secrets of one's own",
                ),
            ),
            {"tenant": tenant, "keys": keys},
            exempt=home.platform,
        ),
    )  # fmt: skip
