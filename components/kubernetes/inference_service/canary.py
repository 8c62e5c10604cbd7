"""Who decides between a stable version and its canary, and the aliases that both follow.

The judge changes nothing in the cluster. Shares, Deployments and routes are the stack's: a program
that changed a weight would be undone by the next update, and would need the right to turn requests
away from any service of the namespace. So the verdict is a signed record of an alias in the
registry, and who brings the stack up serves what the aliases stand for, a canary with the share
that its record says it has earned. The judge has an account of its own without a token, the
certificate that Prometheus shows the service's servers, and, as whoever publishes, the key that
signs and a way into the registry.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES, SECRET_STORE
from falaj.components.kubernetes import _registry_access as registry
from falaj.components.kubernetes._key_ring import KEY_RING, KEYS, SECRET, unpack_command, volumes
from falaj.components.kubernetes._objects import Manifest, format_number
from falaj.components.kubernetes._peers import resolver_egress
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._pods import INFERENCE_IMAGE, USER, unprivileged_pod
from falaj.components.kubernetes._rights import account
from falaj.components.kubernetes._validation import options
from falaj.components.kubernetes.inference_service import network
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    CanaryArgs,
    InferenceServiceSpec,
    Judge,
    JudgeArgs,
    Package,
    Version,
)
from falaj.components.kubernetes.inference_service.deployment import (
    OBSERVER,
    container,
    in_zones,
    observer_volume,
    resources,
)
from falaj.components.kubernetes.inference_service.network import (
    judge_labels,
    judge_name,
    server_ports,
)
from falaj.components.kubernetes.training.pods import publishing_pods
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.model_names import ALIAS, PUBLISHED_MODEL, SHARE

_AT: Final = "canary"
_OF_ACCESS: Final = registry.RegistryAccessArgs.__annotations__
_DEMANDS: Final = tuple(each for each in JudgeArgs.__annotations__ if each not in _OF_ACCESS)
"""What a canary is judged by."""


def checked_canary(
    given: Mapping[str, Any], placed: InCluster | None, package: Package,
    versions: Sequence[Version], errors: ArgumentErrors,
) -> Judge | None:  # fmt: skip
    """The argument ``canary``; None where nobody is to judge.

    Args:
        given: the service's arguments.
        placed: where it is; None where that was refused.
        package: where its packages are.
        versions: what is served.
        errors: gets what is wrong.
    """
    if given.get(_AT) is None:
        return None
    asked = options(_AT, given[_AT], CanaryArgs, errors)
    found = errors.checked_only(asked, CanaryArgs, at=f"{_AT}.")
    aliases = str(found["stable"]), _followed(asked, given, errors)
    if aliases[0] == aliases[1]:
        errors.add(f"{_AT}.stable", aliases[0], "another alias than the canary's")
    if given.get("overflow_from"):
        errors.say(_AT, "is for a service with a route; leave it out with overflow_from")
    if package.name != f"{MODEL_REPOSITORIES}/{given.get('model')}" or package.kind != "image":
        errors.say(
            _AT,
            f"follows aliases of {MODEL_REPOSITORIES}/<model> in the registry: set package_name "
            "to that, with package_source 'image'",
        )
    share: int = found["share"] or int(SHARE.low)
    steps = _steps(found["steps"] or (), share, asked, errors)
    weights = sorted(each.weight for each in versions)
    shares = [[each, 100 - each] for each in (share, *steps)]
    if "share" in asked and weights not in ([100], [], *shares):
        errors.add(
            f"{_AT}.share", share, f"the lesser of two weights, but versions have {weights}",
            "`falaj models follow` and `falaj up` write versions by it",
        )  # fmt: skip
    judge = _judge(asked, placed, given, errors)
    if judge is None or len(versions) != 2:
        return None
    return Judge(judge[0], aliases, judge[1], found["record"] or 0, steps)


def _steps(
    given: Sequence[object], share: int, asked: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[int, ...]:
    """The argument ``steps``: shares that grow."""
    steps = tuple(each for each in given if isinstance(each, int))
    if any(later <= before for before, later in pairwise((share, *steps))):
        errors.add(
            f"{_AT}.steps", list(given), f"shares that grow, each above the one before, from "
            f"{share} of share on",
        )  # fmt: skip
    if steps and asked.get("judge") is None:
        errors.say(f"{_AT}.steps", "are taken as a judge finds: give canary.judge as well")
    return steps


def _followed(asked: Mapping[str, Any], given: Mapping[str, Any], errors: ArgumentErrors) -> str:
    """The alias of ``model``, whose model is the service's."""
    value = asked.get("model")
    if value is None:
        return ""
    model, _, alias = str(value).partition("@")
    if not isinstance(value, str) or not PUBLISHED_MODEL.allows(model) or not ALIAS.allows(alias):
        errors.add(f"{_AT}.model", value, "MODEL@ALIAS, such as credit@candidate")
    elif model != given.get("model"):
        errors.add(
            f"{_AT}.model", value, f"an alias of the service's own model: {given.get('model')}@…"
        )
    return alias


def _judge(
    asked: Mapping[str, Any], placed: InCluster | None, given: Mapping[str, Any],
    errors: ArgumentErrors,
) -> tuple[registry.RegistryAccess, Mapping[str, float]] | None:  # fmt: skip
    at = f"{_AT}.judge"
    if asked.get("judge") is None:
        return None
    own = options(at, asked["judge"], JudgeArgs, errors)
    plain = {key: each for key, each in own.items() if key in _DEMANDS}
    found = errors.checked_only(plain, JudgeArgs, at=f"{at}.")
    demands: dict[str, float] = {key: found[key] for key in _DEMANDS}
    if demands["window_minutes"] > 60 * demands["deadline_hours"]:
        errors.add(
            f"{at}.window_minutes", format_number(demands["window_minutes"]),
            f"at most the {format_number(demands['deadline_hours'])} hours of deadline_hours",
        )  # fmt: skip
    if placed is None:
        return None
    store = str(given.get("secret_store", SECRET_STORE))
    return registry.checked(at, own, placed, store, errors), demands


def beside(spec: InferenceServiceSpec, judge: Judge) -> list[Manifest]:
    """What the judge needs: its account, its secrets, and whom it reaches."""
    name = judge_name(spec)
    ports = server_ports(spec)
    replicas = {"to": [{"podSelector": {"matchLabels": spec.selector()}}], "ports": ports}

    def about(ending: str, /, *, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
        return network.beside(spec, f"{name}{ending}", judge_labels(spec), labels)

    return [
        account(about("")),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": about(""),
            "spec": {
                "podSelector": {"matchLabels": judge_labels(spec)},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [resolver_egress(), replicas, registry.egress(judge.access)],
            },
        },
        # Of both versions.
        network.addresses(about(""), spec.selector()),
        *registry.secrets(judge.access, about),
    ]


#: How often it is tried again after faults, the registry's above all.
_TRIES: Final = 6
_RECORD: Final = "falaj.io/record"
"""Annotation of the judge's pod: a Job with another one is another Job."""


def job(spec: InferenceServiceSpec, judge: Judge) -> Manifest:
    """The Job that judges the canary that is served now; another canary has another.

    So has one that was withdrawn and is tried once more, by a record of its own.
    """
    stable, canary = sorted(spec.versions, key=lambda each: each.weight, reverse=True)
    about = network.beside(spec, f"{judge_name(spec)}-v{canary.number}", judge_labels(spec))
    # It lasts for hours: an update doesn't wait for its end.
    notes = {**about["annotations"], "pulumi.com/skipAwait": "true"}
    tried = {_RECORD: str(judge.record)} if judge.record else {}
    hours = judge.demands["deadline_hours"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {**about, "annotations": notes},
        "spec": {
            "backoffLimit": _TRIES,
            # Twice what one try takes: a pod that was evicted looks from the beginning.
            "activeDeadlineSeconds": round(2 * 3600 * hours),
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": publishing_pods(),
            "template": {
                "metadata": {
                    "labels": about["labels"],
                    "annotations": {**about["annotations"], **tried},
                },
                "spec": _pod(spec, judge, _command(spec, judge, stable, canary)),
            },
        },
    }


def _pod(spec: InferenceServiceSpec, judge: Judge, command: list[str]) -> dict[str, Any]:
    name, image = judge_name(spec), spec.images[INFERENCE_IMAGE]
    size = resources(0.1, 256)
    judging = container(
        "judge", image, command,
        {KEYS: "keys", OBSERVER: "observer:ro", "/tmp": "tmp"},  # noqa: S108
        size,
    )  # fmt: skip
    judging["terminationMessagePolicy"] = "FallbackToLogsOnError"
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "serviceAccountName": name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": spec.operation.priority_class,
        "securityContext": unprivileged_pod(fsGroup=USER),
        "nodeSelector": dict(spec.placed.node_selector),
        **in_zones(spec),
        "initContainers": [
            container(
                "keys", image, [*unpack_command(), "--signs"],
                {SECRET: "secret:ro", KEYS: "keys", "/tmp": "tmp"},  # noqa: S108
                size,
            )
        ],
        "containers": [judging],
        "volumes": [
            *volumes(f"{name}-keys"),
            observer_volume(spec),
            {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "32Mi"}},
        ],
    }  # fmt: skip
    registry.give(judge.access, name, found, judging)
    return found


def _command(
    spec: InferenceServiceSpec, judge: Judge, stable: Version, canary: Version
) -> list[str]:
    demands = [
        word
        for key, value in judge.demands.items()
        for word in (f"--{key.replace('_', '-')}", format_number(value))
    ]
    further = next((each for each in judge.steps if each > canary.weight), None)
    if further is not None:
        demands += ["--next-share", str(further)]
    return [
        "python", "-m", "falaj.workloads.rollout", "judge",
        "--model", spec.model,
        "--stable", str(stable.number), "--canary", str(canary.number),
        "--stable-alias", judge.aliases[0], "--canary-alias", judge.aliases[1],
        "--servers", f"{judge_name(spec)}.{spec.namespace}.svc:{PORT}",
        "--server-name", spec.host,
        "--certificate", f"{OBSERVER}/tls.crt", "--private-key", f"{OBSERVER}/tls.key",
        "--authority", f"{OBSERVER}/ca.crt",
        "--keyring", KEY_RING,
        *registry.options(judge.access),
        *demands,
    ]  # fmt: skip
