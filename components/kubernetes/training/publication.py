"""What becomes of a model once its gang has trained it: gated, optimised, signed and delivered.

One pod after the gang, whose containers have duties of their own. `optimise` reads run and dataset
with the job's key ring, judges the model, and has no key that signs and no way into the registry.
`publish` has both, and sees neither run nor dataset: only what `optimise` left, which is sealed.
The signing key is laid out after `optimise` has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES, TENANT_LABEL
from falaj.components.kubernetes._key_ring import (
    KEY_RING,
    KEYS,
    packed_secret,
    volumes,
)
from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._peers import resolver_egress
from falaj.components.kubernetes._placed import (
    COMPONENT_LABEL,
    PROTECTED,
    InCluster,
    check_secret_entry,
)
from falaj.components.kubernetes._secrets import external_secret
from falaj.components.kubernetes._validation import amount, number, options, private_ranges
from falaj.components.kubernetes.training.arguments import (
    Placement,
    PodSize,
    Publication,
    PublishArgs,
    Run,
)
from falaj.components.kubernetes.training.placement import computing
from falaj.components.kubernetes.training.pods import (
    DATA,
    RUNS,
    SCRATCH,
    publishing_pods,
    template,
    unpacks,
)
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.limits import MODEL, TextRule
from falaj.components.specification.node_pools import label_value
from falaj.components.specification.workload_bounds import bound

ROLE: Final = "publish"
"""Of the replicated job, and of its container."""
ENDING: Final = f"-{ROLE}"
"""Of the names of what stands beside the job for it."""
_OPTIMISE: Final = "optimise"
_SIGNING: Final = "signing-"
"""Beginning of the names of what has the ring that signs."""
_SHARED_MIB: Final = 64
_ALIAS: Final = TextRule(
    r"^[a-z][a-z0-9-]{0,63}$",
    "a small letter, then at most 63 of a-z, 0-9 and '-'",
    "candidate",
)
_FLAVOR: Final = TextRule(
    r"^cpu[a-z0-9._-]{0,60}$",
    "nodes without GPUs, of the kind that is to serve the model",
    "cpu-x86-64",
)
_QUANTISE: Final = ("auto", "never")
_ACCEPT: Final = ("better", "any")
_GATE: Final = ("least_accuracy", "most_rmse", "max_accuracy_drop")
_PEM: Final = re.compile(
    r"\s*(-----BEGIN CERTIFICATE-----\s[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----\s*)+"
)
_MOST_PEM: Final = 64 << 10
_AT: Final = "publish"


def checked(
    value: object, run: Run, store: str, image: str, errors: ArgumentErrors
) -> Publication:
    """The argument ``publish``.

    Args:
        value: what was given.
        run: the job's.
        store: the `ClusterSecretStore`.
        image: Falaj's for trainings on processors, with its digest.
        errors: gets what is wrong.
    """
    asked = options(_AT, value, PublishArgs, errors)
    model = _text(asked, "model", MODEL, errors)
    alias = _text(asked, "alias", _ALIAS, errors, "candidate")
    flavor = _text(asked, "flavor", _FLAVOR, errors, run.placement.flavor)
    entries = {
        key: _entry(key, asked, run.placed, errors) for key in ("key_secret", "registry_secret")
    }
    gate = {
        key: number(
            f"{_AT}.{key}", asked[key], bound("optimization", key).low,
            bound("optimization", key).high, errors,
        )
        for key in _GATE
        if asked.get(key) is not None
    }  # fmt: skip
    if {"least_accuracy", "most_rmse"} <= gate.keys():
        errors.say(f"{_AT}.most_rmse", "is for regressions, least_accuracy for classifications")
    quantise = str(asked.get("quantise", "auto"))
    errors.choice(f"{_AT}.quantise", quantise, _QUANTISE)
    accept = str(asked.get("accept", "better"))
    errors.choice(f"{_AT}.accept", accept, _ACCEPT)
    cpus = amount(f"{_AT}.cpus", asked.get("cpus", 1), errors)
    memory = amount(f"{_AT}.memory_gib", asked.get("memory_gib", 4), errors)
    scratch = errors.whole(f"{_AT}.scratch_gib", asked.get("scratch_gib", 10), 1, 30_000)
    return Publication(
        model, entries["key_secret"], store, image,
        private_ranges(f"{_AT}.registry_cidrs", asked.get("registry_cidrs", ()), errors),
        _port(run.placed.registry), entries["registry_secret"], _authority(asked, errors), alias,
        gate, accept, quantise, flavor,
        PodSize(computing(cpus, memory, scratch), 0, 1, _SHARED_MIB, scratch),
    )  # fmt: skip


def _text(
    asked: Mapping[str, Any], key: str, rule: TextRule, errors: ArgumentErrors, fallback: str = ""
) -> str:
    """A text of a form; what is missing was told before."""
    value: object = asked.get(key, fallback)
    if key in asked or fallback:
        errors.form(f"{_AT}.{key}", value, rule)
    return str(value)


def _entry(key: str, asked: Mapping[str, Any], placed: InCluster, errors: ArgumentErrors) -> str:
    value: object = asked.get(key)
    if value is None:
        return ""
    if not isinstance(value, str) or not value:
        errors.add(f"{_AT}.{key}", value, "text that is not empty")
        return ""
    check_secret_entry(f"{_AT}.{key}", value, placed, errors)
    return value


def _authority(asked: Mapping[str, Any], errors: ArgumentErrors) -> str:
    value: object = asked.get("registry_authority")
    if value is None:
        return ""
    # Nothing but certificates: a private key that was put in by mistake isn't shown to anybody.
    if isinstance(value, str) and len(value) <= _MOST_PEM and _PEM.fullmatch(value):
        return value
    errors.say(
        f"{_AT}.registry_authority",
        f"has to be certificates in PEM form and nothing else, at most {_MOST_PEM} characters",
    )
    return ""


def _port(registry: str) -> int:
    port = registry.partition("/")[0].rpartition(":")[2]
    return int(port) if port.isdecimal() else 443


def _named(run: Run, ending: str) -> str:
    return f"{run.name}{ENDING}{ending}"


def _labels(run: Run) -> dict[str, str]:
    """Of the publishing pod: the gang's rules of the network aren't its own."""
    return {TENANT_LABEL: run.placed.tenant, COMPONENT_LABEL: label_value(_named(run, ""))}


def manifests(run: Run, publication: Publication) -> list[Manifest]:
    """What stands beside the job: its secrets, the registry's authority, whom the pod reaches."""

    def about(ending: str, **more: Any) -> dict[str, Any]:
        return metadata(run.placed, _named(run, ""), _named(run, ending), run.namespace, **more)

    ports = [{"port": publication.registry_port, "protocol": "TCP"}]
    to = [{"ipBlock": {"cidr": each}} for each in publication.registry_cidrs]
    found: list[Manifest] = [
        packed_secret(
            about("-keys", labels=PROTECTED), publication.store, publication.signing_entry
        ),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": about(""),
            "spec": {
                "podSelector": {"matchLabels": _labels(run)},
                "policyTypes": ["Ingress", "Egress"],
                "egress": [resolver_egress(), {"to": to, "ports": ports}],
            },
        },
    ]
    if publication.registry_entry:
        secret = about("-registry", labels=PROTECTED)
        found.append(
            external_secret(secret, publication.store, publication.registry_entry, _CONFIG)
        )
    if publication.authority:
        found.append({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": about("-authority", labels=PROTECTED),
            "data": {_AUTHORITY: publication.authority},
        })  # fmt: skip
    return found


_CONFIG: Final = "config.json"
_REGISTRY: Final = "/run/falaj/registry"
_AUTHORITY: Final = "registry.pem"
_TRUSTED: Final = "/run/falaj/authority"
_OPTIMISED: Final = f"{SCRATCH}/optimised"


def pod(run: Run, publication: Publication, job_keys: str) -> dict[str, Any]:
    """The template of the publishing pod.

    Args:
        run: the job's.
        publication: what it does.
        job_keys: name of the Secret with the job's packed key ring.
    """
    flavor = publication.flavor
    own = replace(
        run, image=publication.image, size=publication.size, telemetry=False, env={},
        placement=Placement(flavor, flavor.endswith("-spot"), None, "required", "none"),
    )  # fmt: skip
    made = template(own, _optimise_command(run, publication), (), _labels(run))
    spec = made["spec"]
    [optimise] = spec["containers"]
    optimise["name"] = _OPTIMISE
    for mount in optimise["volumeMounts"]:
        if mount["mountPath"] == RUNS:
            mount["readOnly"] = True
    optimise["volumeMounts"].append({"name": "keys", "mountPath": KEYS})
    publish = {
        **optimise,
        "name": ROLE,
        "command": _publish_command(run, publication),
        "volumeMounts": [
            each for each in optimise["volumeMounts"]
            if each["mountPath"] not in (RUNS, DATA, KEYS)
        ] + [{"name": f"{_SIGNING}keys", "mountPath": KEYS}],
    }  # fmt: skip
    spec["volumes"] += [*volumes(job_keys), *volumes(_named(run, "-keys"), _SIGNING)]
    if publication.registry_entry:
        secret = {"secretName": _named(run, "-registry"), "defaultMode": 0o440}
        _add(spec, publish, "registry", {"secret": secret}, _REGISTRY)
    if publication.authority:
        source = {"configMap": {"name": _named(run, "-authority")}}
        _add(spec, publish, "authority", source, _TRUSTED)
        trusted = {"name": "SSL_CERT_FILE", "value": f"{_TRUSTED}/{_AUTHORITY}"}
        publish["env"] = [*optimise["env"], trusted]
    spec["initContainers"] = [
        unpacks(publication.image),
        optimise,
        unpacks(publication.image, "--signs", prefix=_SIGNING),
    ]
    spec["containers"] = [publish]
    return made


def _add(
    spec: dict[str, Any], container: dict[str, Any], name: str, source: dict[str, Any], at: str
) -> None:
    spec["volumes"].append({"name": name, **source})
    container["volumeMounts"].append({"name": name, "mountPath": at, "readOnly": True})


def _optimise_command(run: Run, publication: Publication) -> list[str]:
    gate = [
        word
        for name, value in publication.gate.items()
        for word in (f"--{name.replace('_', '-')}", f"{value:g}")
    ]
    return [
        "python", "-m", "falaj.workloads.optimization",
        "--run", f"{RUNS}/{run.name}",
        "--dataset", f"{DATA}/{run.dataset}",
        "--output", _OPTIMISED,
        "--keyring", KEY_RING,
        "--data-class", run.placed.data_class,
        "--quantise", publication.quantise,
        "--accept", publication.accept,
        *gate,
    ]  # fmt: skip


def _publish_command(run: Run, publication: Publication) -> list[str]:
    login = ["--login", f"{_REGISTRY}/{_CONFIG}"] if publication.registry_entry else []
    return [
        "python", "-m", "falaj.workloads.registry", "deliver",
        "--model", publication.model,
        "--from", _OPTIMISED,
        "--fields", f"{_OPTIMISED}/fields.json",
        "--keyring", KEY_RING,
        "--to", f"{run.placed.registry}/{MODEL_REPOSITORIES}",
        "--alias", publication.alias,
        "--json",
        *login,
    ]  # fmt: skip


#: How often a publication is tried again after faults, the registry's above all.
_TRIES: Final = 6


def job(run: Run, publication: Publication, job_keys: str) -> dict[str, Any]:
    """The specification of the Job: one pod, tried again without the gang."""
    return {
        "completionMode": "Indexed",
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": _TRIES,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": publishing_pods(),
        "template": pod(run, publication, job_keys),
    }


def failure_rule() -> dict[str, Any]:
    """What a publication that failed means for the set: the gang's work is done, and stays."""
    return {
        "name": "unpublished",
        "action": "FailJobSet",
        "targetReplicatedJobs": [ROLE],
    }
