"""ECR: repositories, their policies, what is pulled through from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import ACCOUNT, region_of
from falaj.sandbox.clouds.aws.documents import RESOURCE, json_text, policy
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.regions import dns_suffix
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_map
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import matches, sized

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
        rules=(policy("policy", RESOURCE, longest=10240, sids=False),),
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
}  # fmt: skip
