"""Every key of a stack's settings makes something, or is refused: none is accepted and dropped.

The keys are those of the published schema. Each is given another value than the stack has, and the
stack is declared against the sandbox: something of it has to be another one then.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from falaj.components.specification.argument_errors import InvalidArgumentsError
from falaj.stacks.errors import StackError
from tests.stacks.in_mocks import ROOT, declare, shipped
from tests.stacks.test_in_cluster_settings import (
    COORDINATOR,
    PIPELINE,
    SITE,
    SWEEP,
    WORKSPACE,
)

pytestmark = [pytest.mark.thorough, pytest.mark.slow, pytest.mark.timeout(900)]

_SCHEMA = json.loads((ROOT / "stacks/settings/stack.schema.json").read_text(encoding="utf-8"))
_KEYS: Mapping[str, Any] = _SCHEMA["$defs"]
#: What decides which keys there are, and where the stack stands.
_PLACE = {"falaj:platform", "falaj:blueprint", "falaj:region", "falaj:placement"}
#: Texts of every form that settings take; one of them is another value than the stack's.
_TEXTS = (
    "other", "10.9.0.0/16", "other.example.ae", "https://other.example.ae", "sha256:" + "4" * 64,
    "a@example.ae", "0 3 * * *", "12h", "5Gi", "acme/other", "123456789012", "other:other",
    "2026-04-30", "arn:aws:iam::123456789012:role/other", "falaj-high", "preferred", "block",
    "00000000-1111-2222-3333-444444444444", "1.35", "registry.example.ae/other", "Asia/Kolkata",
    "falaj/other@sha256:" + "4" * 64, "none", "gpu", "claim", "horovod", "o-0123456789", "2", "3",
    "hyperband", "falaj-normal", "2026-12", "never", "10.9.0.9", "4" * 64,
    "network", "any", "comma", "csv", "language",
)  # fmt: skip
_NUMBERS = (3, 30, 90, 365, 100, 1000, 1, 0, 64, 7, 4, 2, 8, 0.5)
#: Sections whose keys are names that people give.
_NAMED = {
    "falaj:trainingJobs", "falaj:sweeps", "falaj:federatedTrainings", "falaj:inferenceServices",
    "falaj:pipelines", "falaj:workspaces", "falaj:batchInferences",
}  # fmt: skip
#: Services of the rich stack that name each other.
_NAMING = {"night": "credit", "credit": "night"}
#: Values without an effect, after which a key has none.
_ENOUGH = 8
#: What judges or tells, and makes nothing: tests/policies and tests/stacks/costs have them.
JUDGED = {
    "falaj:sandbox", "falaj:prices", "falaj:policies.packs", "falaj:policies.allowedPlaces",
    "falaj:policies.allowedSites", "falaj:policies.geoRedundancy", "falaj:policies.allowedHosts",
    "falaj:policies.allowedRegistries", "falaj:policies.allowedAccounts",
    "falaj:policies.allowedServices", "falaj:policies.strict", "falaj:policies.requiredTags",
    "falaj:policies.mostGpuMachines", "falaj:policies.rules",
    "falaj:policies.waivers",
    # Of `falaj up` and `falaj models follow`: tests/stacks/models/test_models_follow.py.
    "falaj:inferenceServices.NAME.canary.verifyKey",
}  # fmt: skip


def _resolved(node: Mapping[str, Any]) -> Mapping[str, Any]:
    while "$ref" in node:
        node = {
            **_KEYS[node["$ref"].rpartition("/")[2]],
            **{k: v for k, v in node.items() if k != "$ref"},
        }
    return node


def _values(node: Mapping[str, Any], current: Any) -> Iterator[Any]:
    """Other values that a key could have."""
    node = _resolved(node)
    if "enum" in node:
        yield from (each for each in node["enum"] if each != current)
        return
    for choice in node.get("anyOf", ()):
        yield from _values(choice, current)
    kinds = node.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "boolean" in kinds:
        yield from (each for each in (True, False) if each is not current)
    if {"integer", "number"} & set(kinds):
        if isinstance(current, int | float):
            yield from (current + 1, current - 1, current * 2)
        yield from (node[each] for each in ("minimum", "maximum") if each in node)
        yield from _NUMBERS
    elif "string" in kinds:
        yield from (each for each in node.get("examples", ()) if each != current)
        if isinstance(current, str):
            yield re.sub(r"\d", lambda found: str((int(found[0]) + 1) % 10), current)
            yield f"{current}x"
            yield f"x{current}"
        yield from _TEXTS
    if "array" in kinds:
        have = current if isinstance(current, list) else []
        if len(have) > 1:
            yield have[:-1]
        items = node.get("items", {})
        if "enum" in (among := _resolved(items)):
            yield list(among["enum"])
        for each in _values(items, have[0] if have else None):
            yield from ([*have, each], [each])
    if "properties" in node or "object" in kinds:
        yield from _objects(node)


def _objects(node: Mapping[str, Any]) -> Iterator[Any]:
    properties, inner = node.get("properties", {}), node.get("additionalProperties")
    needed = {
        key: next(_values(properties[key], None), "other") for key in node.get("required", ())
    }
    if needed or properties:
        yield needed
    elif isinstance(inner, dict):
        yield from ({"other": each} for each in _values(inner, None))
    else:
        yield {"other": "x"}


_Path = tuple[str | int, ...]


def _leaves(
    node: Mapping[str, Any], current: Any, path: _Path
) -> Iterator[tuple[_Path, Any, Any]]:
    """Each key, what it may be, and what it is."""
    node = _resolved(node)
    inner, items = node.get("additionalProperties"), node.get("items")
    if node.get("properties") and len(path) < 7:
        for key, each in node["properties"].items():
            have = current.get(key) if isinstance(current, dict) else None
            yield from _leaves(each, have, (*path, key))
    elif isinstance(inner, dict) and isinstance(current, dict) and current:
        for key, each in current.items():
            yield from _leaves(inner, each, (*path, key))
    elif (
        isinstance(items, dict)
        and isinstance(current, list)
        and current
        and _resolved(items).get("properties")
    ):
        yield from _leaves(items, current[0], (*path, 0))
    else:
        yield path, node, current


def _with(config: dict[str, Any], path: _Path, value: Any) -> dict[str, Any]:
    changed: Any = copy.deepcopy(config)
    place = changed
    for each in path[:-1]:
        if isinstance(place, dict) and not isinstance(place.get(each), dict | list):
            place[each] = {}
        place = place[each]
    place[path[-1]] = value
    return changed


def _made(config: Mapping[str, Any], stack: str) -> dict[tuple[str, str], str]:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        mocks = declare(config, stack)
    return {
        (
            each.type,
            each.name,
        ): f"{each.provider} {json.dumps(each.inputs, sort_keys=True, default=str)}"
        for each in mocks.resources
        if each.custom
    }


def _shape(path: _Path) -> str:
    """A key, without the names that a section's entries were given."""
    named = path[0] in _NAMED
    return ".".join(
        "NAME" if place == 1 and named else str(each)
        for place, each in enumerate(path)
        if not isinstance(each, int)
    )


def _around(config: dict[str, Any], key: str, name: str) -> dict[str, Any]:
    """The stack that a key is tried in: of workloads, its own and the one that it names.

    Others know nothing of it, and each declares dozens of objects.
    """
    if key not in _NAMED:
        return config
    kept = {name, _NAMING.get(name)}
    return {
        each: {own: about for own, about in value.items() if own in kept} if each == key else value
        for each, value in config.items()
        if each == key or each not in _NAMED
    }


def outcomes(config: dict[str, Any], blueprint: str, stack: str) -> dict[str, set[str]]:
    """Keys that make something, are ``dropped``, or ``refused`` with every value."""
    found: dict[str, set[str]] = {"makes something": set(), "dropped": set(), "refused": set()}
    made = functools.cache(lambda key, name: _made(_around(config, key, name), stack))
    for path, node, current in _leaves(_KEYS[blueprint], config, ()):
        name = _shape(path)
        if path[0] in _PLACE or name in JUDGED or name in found["makes something"]:
            continue
        key, entry = (str(path[0]), str(path[1])) if path[0] in _NAMED else ("", "")
        around = _around(config, key, entry)
        before = made(key, entry)
        without_effect, tried = 0, {str(current).lower()}
        for value in _values(node, current):
            # `false` and "false" are the same.
            if str(value).lower() in tried:
                continue
            tried.add(str(value).lower())
            try:
                after = _made(_with(around, path, value), stack)
            except (StackError, InvalidArgumentsError):
                continue
            if after != before:
                outcome = "makes something"
                break
            without_effect += 1
            if without_effect == _ENOUGH:
                outcome = "dropped"
                break
        else:
            # One that is allowed may be the default.
            outcome = "refused" if without_effect < 2 else "dropped"
        found[outcome].add(name)
    # What one of a section refuses, another may take: a service with a GPU, say.
    found["refused"] -= found["makes something"] | found["dropped"]
    return found


_AUTHORITY = "-----BEGIN CERTIFICATE-----\nMII1\n-----END CERTIFICATE-----\n"
_JOBS = ("own", "grows", "published", "notes")


def _rich_workloads() -> dict[str, Any]:
    """The shipped stack with what it leaves out, in each section the odd ones first.

    A key that makes something in one of them isn't tried in the next.
    """
    config: dict[str, Any] = {**shipped("onprem-workloads"), "falaj:environment": "development"}
    jobs, services = config["falaj:trainingJobs"], config["falaj:inferenceServices"]
    together = ("topology", "fabric", "parallel")
    jobs["grows"] = {
        **{key: each for key, each in jobs["notes"].items() if key not in together},
        "elastic": {"minNodes": 1, "maxNodes": 3}, "keySecret": "acme/training-keys",
        "tracking": {
            "server": "https://mlflow.corp.internal", "cidrs": ["10.60.1.9/32"],
            "secret": "acme/mlflow", "authority": _AUTHORITY,
        },
    }  # fmt: skip
    jobs["own"] = {
        "program": ["python", "train.py"], "image": "falaj/own@sha256:" + "3" * 64,
        "flavor": "h200", "nodes": 2, "gpusPerNode": 8, "processesPerNode": 8,
        "fabric": "infiniband", "checkpoints": "falaj-files",
        "tracking": {
            "server": "https://mlflow.mlops.svc", "namespace": "mlops", "podPort": 5000,
        },
    }  # fmt: skip
    jobs["published"] = {
        **{key: each for key, each in jobs["notes"].items() if key != "topology"},
        "keySecret": "acme/training-keys",
        "publish": {
            "model": "credit", "keySecret": "acme/publishing-keys", "flavor": "cpu-x86-64",
            "registryCidrs": ["10.20.0.5/32"],
            "registryAuthority": _AUTHORITY,
        },
    }  # fmt: skip
    service = services["credit"]
    services["night"] = {
        **service, "tier": "gpu", "flavor": "l4", "overflowFrom": "credit", "scaleToZero": True,
        "hours": {"start": "0 7 * * 1-5", "end": "0 19 * * 1-5"},
    }  # fmt: skip
    services["credit"] = {
        **service, "overflow": {"to": "night", "version": 7, "aboveMs": 50},
        "tokenKeys": json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "x": "A" * 43}]}),
    }  # fmt: skip
    services["kept"] = {
        **service, "packageSource": "claim", "packageName": "models", "packagePath": "a",
        "versions": [{"version": 7, "weight": 100}], "hostNames": ["kept.acme.example.ae"],
    }  # fmt: skip
    services["told"] = {
        **services["kept"], "kind": "language", "hostNames": ["told.acme.example.ae"],
    }  # fmt: skip
    public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----\n"
    services["tried"] = {
        **service,
        "canary": {
            "model": "credit@candidate", "share": 10, "verifyKey": public, "steps": [20],
            "judge": {
                "keySecret": "acme/publishing-keys", "registryCidrs": ["10.20.0.5/32"],
                "registryAuthority": _AUTHORITY,
            },
        },
    }  # fmt: skip
    services["seen"] = {
        **service, "auditClaim": "audit",
        "watch": {
            "steps": ["tell", "retrain"], "pipeline": "nightly",
            "controlPlaneCidrs": ["10.60.0.0/24"], "webhook": "https://hooks.acme.internal/in",
            "webhookCidrs": ["10.60.1.9/32"], "webhookSecret": "acme/watch-webhook",
            "webhookAuthority": _AUTHORITY,
        },
    }  # fmt: skip
    config["falaj:trainingJobs"] = {name: jobs[name] for name in _JOBS}
    config["falaj:inferenceServices"] = {
        name: services[name] for name in ("tried", "night", "kept", "credit", "told", "seen")
    }
    config["falaj:sweeps"] = {
        "rates": {
            **SWEEP, "keySecret": "acme/training-keys", "tracking": jobs["grows"]["tracking"],
        },
        "more": {**SWEEP, "tracking": jobs["own"]["tracking"]},
    }  # fmt: skip
    config["falaj:federatedTrainings"] = {
        "leader": {**COORDINATOR, "keySecret": "acme/training-keys"}, "claims": SITE,
        "apart": {
            **COORDINATOR, "mode": "local", "staleness": 4, "gather": 2, "localSteps": 10,
            "compression": "top",
        },
        "hidden": {
            **SITE, "secureAggregation": True,
            "siteKeys": dict.fromkeys(("ajman", "dubai", "sharjah"), "authority"),
            "leastNoise": 1.1, "mostClip": 2, "leastSites": 2,
        },
    }  # fmt: skip
    config["falaj:batchInferences"] = {
        "scores": {
            "flavor": "cpu-x86-64", "inputs": ["rows"], "data": "rows", "results": "scores",
            "model": "churn", "version": 7, "packageDigest": "sha256:" + "1" * 64,
            "keysDigest": "sha256:" + "2" * 64, "keySecret": "acme/batch-keys", "shares": 5,
            "keep": ["id"], "encoding": "utf-8", "decimal": "point",
        },
    }  # fmt: skip
    again = {"controlPlaneCidrs": ["10.60.0.0/24"], "schedule": "0 4 * * *"}
    team = {key: each for key, each in jobs["own"].items() if key != "processesPerNode"}
    config["falaj:pipelines"] = {
        "team": {
            **team,
            **again,
            "starterFlavor": "cpu-x86-64",
            "topology": {"level": "rack"},
        },
        "nightly": {
            **PIPELINE,
            **again,
            "publish": jobs["published"]["publish"],
            "onDrift": {"service": "seen"},
            "tracking": jobs["grows"]["tracking"],
        },
    }
    mirror = {"url": "https://packages.example.ae/simple", "cidrs": ["10.9.0.0/24"]}
    config["falaj:workspaces"] = {"alice": {**WORKSPACE, "packageMirror": mirror}}
    return config


_NO_REGION = "no region of the stack's is degraded"
#: Keys of which the stack has no other value that is allowed, and why.
REFUSED_OF_WORKLOADS = {
    "falaj:acknowledgeDegraded.region": _NO_REGION,
    "falaj:acknowledgeDegraded.asOf": _NO_REGION,
    "falaj:acknowledgeDegraded.for": _NO_REGION,
    "falaj:cluster": "of a cloud's stack",
    "falaj:federatedTrainings.NAME.gpusPerNode": "sites train on CPUs",
    "falaj:federatedTrainings.NAME.role": "decides over the keys of the other side",
    "falaj:federatedTrainings.NAME.secureAggregation": "decides over the sites' keys",
    "falaj:federatedTrainings.NAME.siteKeys": "names that people give",
    "falaj:federatedTrainings.NAME.sites": "names that people give",
    "falaj:images": "a file with digests",
    "falaj:tenant": "the keys are the tenant's",
    "falaj:inferenceServices.NAME.canary.share": "is that of versions",
    "falaj:inferenceServices.NAME.gpuMemoryUtilization": "of texts on GPUs, which have a model",
    "falaj:inferenceServices.NAME.maxModelLength": "of texts on GPUs, which have a model",
    "falaj:inferenceServices.NAME.packageSource": "decides over digests",
    "falaj:inferenceServices.NAME.precision": "of texts on GPUs, which have a model",
    "falaj:inferenceServices.NAME.scaleToZero": "not where another tier overflows into it",
    "falaj:inferenceServices.NAME.tokenKeys": "public keys, as JSON",
    "falaj:inferenceServices.NAME.watch.steps": "decide over the pipeline that is asked",
    "falaj:inferenceServices.NAME.versions.weight": "weights add up to 100",
    "falaj:pipelines.NAME.machine": "of EFA, which AWS has",
    "falaj:pipelines.NAME.parallel.data": "follows from all processes",
    "falaj:pipelines.NAME.parallel.tensor": "the pipeline's pods have a process each",
    "falaj:pipelines.NAME.parameterServers": "of a framework",
    "falaj:pipelines.NAME.plainTraffic": "of restricted data",
    "falaj:sweeps.NAME.gpusPerNode": "the sweep's trials use none",
    "falaj:trainingJobs.NAME.machine": "of EFA, which AWS has",
    "falaj:trainingJobs.NAME.parallel.data": "follows from all processes",
    "falaj:trainingJobs.NAME.parameterServers": "of a framework",
    "falaj:trainingJobs.NAME.plainTraffic": "of restricted data",
    "falaj:trainingJobs.NAME.processesPerNode": "follows GPUs",
}
REFUSED_OF_A_FOUNDATION = {
    "falaj:acknowledgeDegraded.region": _NO_REGION,
    "falaj:acknowledgeDegraded.asOf": _NO_REGION,
    "falaj:acknowledgeDegraded.for": _NO_REGION,
    "falaj:audit.detectorId": "of AWS",
    "falaj:identity.sessionMinutes": "of AWS",
    "falaj:registry.keepImages": "of AWS",
    "falaj:network.apiCallers": "of AWS",
    "falaj:storage.allowedRegions": "the two of one cloud, which the schema doesn't tell apart",
}


def test_workloads() -> None:
    found = outcomes(_rich_workloads(), "workloads", "onprem-workloads")
    # It permits what production refuses, and is no object.
    assert found["dropped"] == {"falaj:inferenceServices.NAME.allowColdProduction"}
    assert sorted(found["refused"]) == sorted(REFUSED_OF_WORKLOADS)
    assert len(found["makes something"]) > 100


def test_a_foundation() -> None:
    people = {"trainer": ["00000000-1111-2222-3333-444444444444"]}
    config = {**shipped("azure-foundation"), "falaj:identity": {"members": people}}
    found = outcomes(config, "foundation", "azure-foundation")
    assert found["dropped"] == {
        # Both clouds take these, and the settings' reference says what they are on Azure. Outputs
        # alone: a registry makes a repository with its first image, and subnets span zones.
        "falaj:registry.repositories", "falaj:network.zones",
        # Nothing.
        "falaj:network.organizationId",
    }  # fmt: skip
    assert sorted(found["refused"]) == sorted(REFUSED_OF_A_FOUNDATION)
