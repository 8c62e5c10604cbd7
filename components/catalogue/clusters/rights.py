"""Rights by which one becomes somebody else, and names that stand for everybody.

https://kubernetes.io/docs/concepts/security/rbac-good-practices/
"""

from typing import Final

#: Verbs on resources by which one becomes somebody else, or more than one is.
ESCALATIONS: Final[tuple[tuple[frozenset[str], frozenset[str], str], ...]] = tuple(
    (frozenset(resources), frozenset(verbs), what)
    for resources, verbs, what in (
        (("roles", "clusterroles"), ("escalate", "bind"), "grant more than one has"),
        (("users", "groups", "serviceaccounts", "uids", "userextras"), ("impersonate",),
         "act as others"),
        (("serviceaccounts/token",), ("create",), "make tokens of others"),
        (("nodes/proxy",), ("get", "create", "update", "patch", "delete"),
         "run commands on every node, past admission and audit"),
        (("pods/exec", "pods/attach", "pods/portforward"), ("create", "get"),
         "get into pods of others"),
        (("pods/ephemeralcontainers",), ("update", "patch"), "add containers to pods of others"),
        (("certificatesigningrequests/approval",), ("update", "patch"), "approve identities"),
        (("signers",), ("approve", "sign"), "sign identities"),
        (("mutatingwebhookconfigurations", "validatingwebhookconfigurations"),
         ("create", "update", "patch"), "see and change every object that others write"),
        (("validatingadmissionpolicies", "validatingadmissionpolicybindings",
          "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"),
         ("create", "update", "patch", "delete", "deletecollection"),
         "change what the cluster itself refuses"),
    )
)  # fmt: skip
#: Verbs that read.
READS: Final = frozenset({"get", "list", "watch", "*"})

EVERYBODY: Final = {
    "system:anonymous": "everybody, without a name",
    "system:unauthenticated": "everybody, without a name",
    "system:authenticated": "everybody who has an account",
    "system:serviceaccounts": "every program of the cluster",
    "system:masters": "whoever no policy holds back",
}
#: Roles that Kubernetes itself gives to everybody.
HARMLESS: Final = frozenset({
    "system:discovery", "system:basic-user", "system:public-info-viewer",
    "system:service-account-issuer-discovery",
})  # fmt: skip
