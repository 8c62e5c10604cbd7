"""Credentials of programs: tokens of their own account, short-lived, for who is known."""

from falaj.components.kubernetes.admission.expressions import text, texts, when
from falaj.components.kubernetes.admission.home import ACCOUNTS, CLUSTER, Home
from falaj.components.kubernetes.admission.pods import PodPolicy, Shape
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

_MOST_SECONDS = 86400
"""A day: what EKS asks for its pods' identities, the longest of the platforms' own.
https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html"""
#: Whom the clouds' own webhooks make tokens for; and the mesh, secrets of Vault's kind.
AUDIENCES = {
    "eks": ("sts.amazonaws.com", "pods.eks.amazonaws.com"),
    "aks": ("api://AzureADTokenExchange",),
    "existing": (),
}
#: The volume that the API server adds for a pod's automatic token.
_AUTOMATIC = "kube-api-access-"


def policies(home: Home) -> tuple[Policy, ...]:
    """Tokens in pods, tokens that are asked for, and secrets that are tokens."""
    return (
        *PodPolicy("tokens", lambda shape: _in_pods(home, shape), exempt=home.platform).policies(),
        Policy(
            "token-secrets",
            (Target("", "v1", ("secrets",)),),
            (
                Check(
                    "kubernetes-long-lived-token",
                    when(
                        'object.?type.orValue("") == "kubernetes.io/service-account-token"',
                        "object.metadata.?name.orValue(object.metadata.?generateName.orValue(\"\"))",
                    ),
                    "the secret is a token that never expires", "projected tokens",
                    "use a projected volume or the TokenRequest API",
                ),
            ),
        ),
        _requests(home),
    )  # fmt: skip


def _in_pods(home: Home, shape: Shape) -> tuple[Check, ...]:
    account = 'variables.pod.?serviceAccountName.orValue("")'
    default = f'({account} in ["", "default"])'
    if shape.is_pod:
        has = (
            f"variables.pod.?volumes.orValue([]).exists(v, v.name.startsWith({text(_AUTOMATIC)}))"
        )
    else:
        has = "variables.pod.?automountServiceAccountToken.orValue(false)"
    sources = (
        "variables.pod.?volumes.orValue([]).map(v, "
        "v.?projected.?sources.orValue([]).filter(s, has(s.serviceAccountToken) && {wrong})"
        '.map(s, {said}).join(", ")).filter(s, s != "")'
    )
    audience = 's.serviceAccountToken.?audience.orValue("")'
    allowed = ("", *AUDIENCES[home.placed.distribution], *home.audiences)
    seconds = "s.serviceAccountToken.?expirationSeconds.orValue(3600)"
    return (
        Check(
            "kubernetes-token-mount",
            when(f"{default} && {has}", '"default"'),
            "a token of the default service account is mounted, which all pods share",
            "automountServiceAccountToken: false, or an account of the program's own",
            "set it, or name the program's serviceAccountName",
        ),
        Check(
            "cluster-token-audience",
            sources.format(wrong=f"!({audience} in {texts(allowed)})", said=audience),
            "tokens for others than the cluster and its cloud",
            ", ".join(each for each in allowed if each) or "the cluster's own",
            "remove the token, or list whom it is for in token_audiences",
        ),
        Check(
            "cluster-token-lifetime",
            sources.format(wrong=f"{seconds} > {_MOST_SECONDS}", said=f'string({seconds}) + " s"'),
            "tokens that are valid for more than a day",
            f"expirationSeconds up to {_MOST_SECONDS}",
            "lower it: programs read the file again",
        ),
    )


def _requests(home: Home) -> Policy:
    """Requests for tokens: those of another namespace are of another tenant."""
    user = "request.userInfo.username"
    own = f'{user}.startsWith({text(ACCOUNTS)} + request.namespace + ":")'
    platform = f'{texts(home.platform)}.exists(n, {user}.startsWith({text(ACCOUNTS)} + n + ":"))'
    return Policy(
        "token-requests",
        (Target("", "v1", ("serviceaccounts/token",), ("CREATE",)),),
        (
            Check(
                "kubernetes-rbac-escalation",
                when(f"{user}.startsWith({text(ACCOUNTS)}) && !{own} && !{platform}", user),
                "the token is of an account of another namespace, and asked for by",
                "accounts of its own namespace and of the platform",
                "use an account of one's own",
            ),
            Check(
                "cluster-token-lifetime",
                when(
                    f"object.spec.?expirationSeconds.orValue(3600) > {_MOST_SECONDS}",
                    "string(object.spec.expirationSeconds) + \" s\"",
                ),
                "the token would be valid for more than a day",
                f"expirationSeconds up to {_MOST_SECONDS}", "ask again instead",
            ),
        ),
        exempt=CLUSTER,
    )  # fmt: skip
