"""ECR repositories and what is pulled through; ECS clusters, task definitions and services."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.documents import RESOURCE, json_text, policy, statements
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of
from falaj.sandbox.clouds.aws.regions import dns_suffix, region_of
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import Reference, Rule, between, matches, not_together, sized
from falaj.sandbox.clouds.model import Problem

_PART: Final = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY: Final = rf"(?=.{{2,256}}$){_PART}(/{_PART})*"
_CREDENTIAL: Final = r"arn:[^:]+:secretsmanager:[^:]+:\d+:secret:ecr-pullthroughcache/.+"
_SETTING: Final = Reference("repository", (t.REPOSITORY,), by=("name",), holds=False)


def _repository_url(resource: Resource) -> Mapping[str, Any]:
    host = f"{ACCOUNT}.dkr.ecr.{region_of(resource)}.{dns_suffix(region_of(resource))}"
    return {"registryId": ACCOUNT, "repositoryUrl": f"{host}/{resource.string('name')}"}


def _encryption(inputs: Inputs) -> Iterator[Problem]:
    for path, item in inputs.each("encryptionConfigurations[]"):
        kind, key = as_map(item).get("encryptionType"), as_map(item).get("kmsKey")
        if key is not None and kind in (None, "AES256"):
            yield Problem(f"{path}.kmsKey", "needs encryptionType KMS or KMS_DSSE; set it")


def _no_resource(inputs: Inputs) -> Iterator[Problem]:
    """A repository's policy is about that repository ("SetRepositoryPolicy")."""
    for index, statement in enumerate(statements(inputs.get("policy"))):
        for key in ("Resource", "NotResource"):
            if key in statement:
                yield Problem(
                    "policy",
                    f"Statement[{index}].{key} isn't allowed in a repository's policy; remove it",
                )


def _lifecycle(inputs: Inputs) -> Iterator[Problem]:
    """A lifecycle policy has rules with priorities of their own (ECR user guide)."""
    text = inputs.get("policy")
    if not isinstance(text, str):
        return
    try:
        rules = as_map(json.loads(text)).get("rules")
    except (ValueError, RecursionError):
        return
    if not isinstance(rules, list) or not rules:
        yield Problem("policy", "has no 'rules'; give at least one")
        return
    seen: set[object] = set()
    for index, item in enumerate(cast("list[Any]", rules)):
        rule = as_map(item)
        priority = rule.get("rulePriority")
        if not isinstance(priority, int) or priority in seen:
            yield Problem("policy", f"rules[{index}].rulePriority {priority!r} isn't its own")
        else:
            seen.add(priority)
        selection, action = as_map(rule.get("selection")), as_map(rule.get("action"))
        if selection.get("tagStatus") not in ("tagged", "untagged", "any"):
            yield Problem(
                "policy", f"rules[{index}].selection.tagStatus is {selection.get('tagStatus')!r}; "
                "allowed: tagged, untagged, any",
            )  # fmt: skip
        if not isinstance(action.get("type"), str):
            yield Problem("policy", f"rules[{index}].action.type is missing; such as 'expire'")


def _upstream(inputs: Inputs) -> Iterator[Problem]:
    url = inputs.string("upstreamRegistryUrl")
    if url.startswith(("http://", "https://")):
        yield Problem("upstreamRegistryUrl", f"{url!r} isn't allowed; leave the scheme out")
    needing = ("registry-1.docker.io", "ghcr.io", "registry.gitlab.com")
    if url in needing and not inputs.is_given("credentialArn"):
        yield Problem("credentialArn", f"is missing; {url} asks for credentials")


_NAME: Final = r"[A-Za-z0-9_-]{1,255}"
_MEMORY: Final[Mapping[int, tuple[int, ...]]] = {
    256: (512, 1024, 2048),
    512: tuple(range(1024, 4097, 1024)),
    1024: tuple(range(2048, 8193, 1024)),
    2048: tuple(range(4096, 16385, 1024)),
    4096: tuple(range(8192, 30721, 1024)),
    8192: tuple(range(16384, 61441, 4096)),
    16384: tuple(range(32768, 122881, 8192)),
}
"""MiB that Fargate sells with each number of CPU units (ECS developer guide, "Task size")."""


def _containers(path: str) -> Rule:
    """Container definitions are a JSON list of named containers with images."""

    def rule(inputs: Inputs) -> Iterator[Problem]:
        text = inputs.get(path)
        if not isinstance(text, str):
            return
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Problem(path, f"isn't JSON: {str(error)[:120]}")
            return
        if not isinstance(found, list) or not found:
            yield Problem(path, "has to be a JSON list of at least one container")
            return
        names: set[str] = set()
        for index, item in enumerate(cast("list[Any]", found)):
            container = as_map(item)
            for needed in ("name", "image"):
                if not isinstance(container.get(needed), str):
                    yield Problem(path, f"[{index}].{needed} is missing; give it")
            name = container.get("name")
            if isinstance(name, str):
                if name in names:
                    yield Problem(path, f"[{index}].name {name!r} is used twice")
                names.add(name)

    return rule


def _fargate(inputs: Inputs) -> Iterator[Problem]:
    """Fargate sells memory in fixed steps, and takes only awsvpc networking."""
    if "FARGATE" not in as_list(inputs.values.get("requiresCompatibilities")):
        return
    mode = inputs.get("networkMode")
    if isinstance(mode, str) and mode != "awsvpc":
        yield Problem("networkMode", f"{mode!r} isn't allowed with FARGATE; use 'awsvpc'")
    elif not inputs.is_given("networkMode"):
        yield Problem("networkMode", "is missing; FARGATE needs 'awsvpc'")
    for path in ("cpu", "memory"):
        if not inputs.is_given(path):
            yield Problem(path, "is missing; FARGATE needs cpu and memory")
    cpu, memory = inputs.string("cpu"), inputs.string("memory")
    if cpu.isdigit() and memory.isdigit():
        sizes = _MEMORY.get(int(cpu))
        if sizes is None:
            yield Problem("cpu", f"{cpu} isn't sold; allowed: {', '.join(map(str, _MEMORY))}")
        elif int(memory) not in sizes:
            yield Problem(
                "memory", f"{memory} MiB isn't sold with {cpu} CPU units; allowed: "
                f"{sizes[0]} to {sizes[-1]} in the documented steps",
            )  # fmt: skip


def _task(resource: Resource) -> Mapping[str, Any]:
    family = resource.string("family")
    before = [
        made
        for made in resource.world.all(t.TASK_DEFINITION)
        if made.outputs.get("family") == family
    ]
    revisions = [int(made.outputs.get("revision") or 0) for made in before if made.urn]
    revision = max(revisions, default=0) + 1
    base = arn_of(resource, "ecs", f"task-definition/{family}")
    return {"arn": f"{base}:{revision}", "arnWithoutRevision": base, "revision": revision}


def _service_network(resource: Resource) -> Iterator[Problem]:
    """Tasks with awsvpc networking need subnets from their service."""
    wanted = resource.string("taskDefinition")
    for made in resource.world.all(t.TASK_DEFINITION):
        if wanted in (made.outputs.get("arn"), made.outputs.get("family")) and (
            made.outputs.get("networkMode") == "awsvpc"
            and not resource.is_given("networkConfiguration")
        ):
            yield Problem(
                "networkConfiguration",
                "is missing; the task's network mode is awsvpc: give subnets",
            )


KINDS: Final[AwsKinds] = {
    t.REPOSITORY: AwsKind(
        id="{name}",
        arn="ecr:{region}:{account}:repository/{name}",
        name=AutoName(longest=256, lower=True),
        replaces=("name", "encryptionConfigurations"),
        rules=(
            matches("name", _REPOSITORY,
                    "2 to 256 of a-z, 0-9 and . _ - /, parts begin with a letter or digit"),
            _encryption,
        ),
        references=(
            Reference("encryptionConfigurations[].kmsKey", (t.KEY, t.KEY_ALIAS),
                      by=("arn", "keyId", "name"), holds=False),
        ),
        unique=("name",),
        computed=_repository_url,
        defaults={"imageTagMutability": "MUTABLE"},
    ),
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": AwsKind(
        id="{repository}",
        replaces=("repository",),
        rules=(json_text("policy"), _lifecycle),
        references=(_SETTING,),
        unique=("repository",),
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    "aws:ecr/repositoryPolicy:RepositoryPolicy": AwsKind(
        id="{repository}",
        replaces=("repository",),
        rules=(policy("policy", RESOURCE, longest=10240, sids=False), _no_resource),
        references=(_SETTING,),
        unique=("repository",),
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    "aws:ecr/registryPolicy:RegistryPolicy": AwsKind(
        id="{account}",
        is_always_there=True,
        rules=(policy("policy", RESOURCE, longest=10240, sids=False),),
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    "aws:ecr/registryScanningConfiguration:RegistryScanningConfiguration": AwsKind(
        id="{account}",
        is_always_there=True,
        rules=(sized("rules", 0, 100),),
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    "aws:ecr/replicationConfiguration:ReplicationConfiguration": AwsKind(
        id="{account}",
        is_always_there=True,
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    "aws:ecr/pullThroughCacheRule:PullThroughCacheRule": AwsKind(
        id="{ecrRepositoryPrefix}",
        replaces=("ecrRepositoryPrefix", "upstreamRegistryUrl", "upstreamRepositoryPrefix"),
        rules=(
            matches("ecrRepositoryPrefix", rf"ROOT|{_PART}(/{_PART})*",
                    "2 to 30 of a-z, 0-9 and . _ - /, or ROOT"),
            sized("ecrRepositoryPrefix", 2, 30, "characters"),
            matches("credentialArn", _CREDENTIAL,
                    "a secret's ARN whose name begins with ecr-pullthroughcache/"),
            _upstream,
        ),
        references=(Reference("credentialArn", (t.SECRET,), by=("arn",), holds=False),),
        unique=("ecrRepositoryPrefix",),
        computed=lambda _: {"registryId": ACCOUNT},
    ),
    t.ECS_CLUSTER: AwsKind(
        id="arn:{partition}:ecs:{region}:{account}:cluster/{name}",
        arn="*",
        name=AutoName(longest=255),
        replaces=("name",),
        rules=(matches("name", _NAME, "up to 255 letters, digits, '-' and '_'"),),
        references=(
            relations.key("configuration.managedStorageConfiguration.kmsKeyId"),
            relations.key("configuration.executeCommandConfiguration.kmsKeyId"),
        ),
        unique=("name",),
    ),
    "aws:ecs/clusterCapacityProviders:ClusterCapacityProviders": AwsKind(
        id="{clusterName}",
        replaces=("clusterName",),
        references=(Reference("clusterName", (t.ECS_CLUSTER,), by=("name",), holds=False),),
    ),
    t.TASK_DEFINITION: AwsKind(
        id="{family}",
        replaces=("containerDefinitions", "cpu", "enableFaultInjection", "ephemeralStorage",
                  "executionRoleArn", "family", "ipcMode", "memory", "networkMode", "pidMode",
                  "placementConstraints", "proxyConfiguration", "requiresCompatibilities",
                  "runtimePlatform", "taskRoleArn", "volumes"),
        rules=(
            matches("family", _NAME, "up to 255 letters, digits, '-' and '_'"),
            _containers("containerDefinitions"),
            _fargate,
            between("ephemeralStorage.sizeInGib", 21, 200, "GiB"),
        ),
        references=(
            relations.role("executionRoleArn"),
            relations.role("taskRoleArn"),
            Reference("volumes[].efsVolumeConfiguration.fileSystemId", (t.FILE_SYSTEM,),
                      holds=False),
        ),
        crosschecks=(
            relations.trusts(
                "executionRoleArn", "ecs-tasks.amazonaws.com", "tasks' execution role"
            ),
            relations.trusts("taskRoleArn", "ecs-tasks.amazonaws.com", "tasks' role"),
        ),
        computed=_task,
    ),
    t.ECS_SERVICE: AwsKind(
        id=lambda inputs: (
            arn_of(
                inputs, "ecs",
                f"service/{inputs.string('cluster').rsplit('/', 1)[-1] or 'default'}"
                      f"/{inputs.string('name')}")
        ),
        arn="*",
        name=AutoName(longest=255),
        replaces=("cluster", "deploymentController.type", "iamRole", "launchType", "name",
                  "schedulingStrategy"),
        rules=(
            matches("name", _NAME, "up to 255 letters, digits, '-' and '_'"),
            not_together("launchType", "capacityProviderStrategies"),
            between("healthCheckGracePeriodSeconds", 0, 2147483647, "seconds"),
            sized("networkConfiguration.subnets", 1, 16),
            sized("networkConfiguration.securityGroups", 0, 5),
        ),
        references=(
            Reference("cluster", (t.ECS_CLUSTER,), by=("arn", "name")),
            Reference("taskDefinition", (t.TASK_DEFINITION,),
                      by=("arn", "family", "arnWithoutRevision"), holds=False),
            relations.subnet("networkConfiguration.subnets[]"),
            relations.security_group("networkConfiguration.securityGroups[]"),
            Reference("loadBalancers[].targetGroupArn", (t.TARGET_GROUP,), by=("arn",),
                      holds=False),
        ),
        crosschecks=(_service_network,),
        unique=("cluster", "name"),
    ),
}  # fmt: skip
