"""Container images that services of the clouds run: by the key that names them, in any type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import Resource, is_unknown, text
from falaj.policies.model.resource import remembered
from falaj.policies.reading.encoded import texts_in
from falaj.policies.reading.images import is_plausible
from falaj.policies.reading.walk import Leaf, is_document, walk

#: In small letters. Of SageMaker's `baseImage`, EMR's `imageConfiguration.imageUri`, AgentCore's
#: `containerUri`, Azure Batch's `containerImageNames`, EC2 Image Builder's `parentImage`.
_KEYS: Final = frozenset((
    "image", "imageuri", "imageidentifier", "containeruri", "containerimage",
    "containerimagenames", "baseimage", "inferenceimage", "parentimage",
))  # fmt: skip
#: What a site of Azure runs: ``DOCKER|registry/name:tag``, beside ``PYTHON|3.12``
#: (https://learn.microsoft.com/azure/app-service/reference-app-settings).
_RUNTIMES: Final = frozenset(("linuxfxversion", "windowsfxversion"))
_DOCKER: Final = re.compile(r"(?:docker|sitecontainers)\|", re.IGNORECASE)
#: Several containers, as a file of Docker Compose in base64.
_COMPOSE: Final = re.compile(r"compose\|", re.IGNORECASE)
_IN_COMPOSE: Final = re.compile(r"(?m)^\s+image:\s*[\"']?([^\s\"'#]+)")
#: Texts that builds are made of: of EC2 Image Builder, tasks of Azure's registry, whose steps run
#: what stands after ``cmd``, and, by where it stands, of Docker's BuildKit
#: (https://learn.microsoft.com/azure/container-registry/container-registry-tasks-reference-yaml).
_BUILDS: Final = frozenset(("dockerfiletemplatedata", "encodedtaskcontent"))
_BUILDKIT: Final = ("dockerfile", "inline")
_BASE: Final = re.compile(
    r"(?im)^\s*FROM\s+(?:--platform=\S+\s+)?(\S+)(?:\s+AS\s+(\S+))?\s*$"
    r"|^\s*(?:-\s+)?cmd:\s*[\"']?([^\s\"'#]+)"
)
#: Other things that are called images: of machines, and of CodeBuild, which each region has.
_NO_CONTAINERS: Final = re.compile(
    r"arn:|ami-|/|aws/codebuild/|resolve:|[A-Za-z]+ ", re.IGNORECASE
)
#: Images of machines and of pictures, whose keys are the same.
_OF_MACHINES: Final = re.compile(
    r"aws:(?:ec2|imagebuilder(?!/containerRecipe)|autoscaling|workspaces|appstream|rekognition|lex|connect|iam)/|"
    r"azure-native:(?:compute|devtestlab|labservices|desktopvirtualization|azurestackhci|hybrid\w*"
    r"|virtualmachineimages|devcenter|media|portal\w*|marketplace|cognitiveservices):"
)


@remembered(size=8)
def service_images(resource: Resource) -> tuple[tuple[Leaf, Any], ...]:
    """Every reference to an image, with where it stands; unknown ones included."""
    return tuple(_images(resource))


def _images(resource: Resource) -> Iterator[tuple[Leaf, Any]]:
    if _OF_MACHINES.match(resource.kind):
        return
    for leaf in walk(resource):
        key = leaf.key.lower()
        if (key in _BUILDS or leaf.keys == _BUILDKIT) and not leaf.is_own:
            yield from ((leaf, each) for each in _bases(text(leaf.value)))
            continue
        if (key not in _KEYS and key not in _RUNTIMES) or leaf.is_own:
            continue
        if is_unknown(leaf.value):
            yield leaf, leaf.value
            continue
        given = text(leaf.value)
        if key in _RUNTIMES and _COMPOSE.match(given):
            for plain in texts_in(given):
                yield from ((leaf, each) for each in _IN_COMPOSE.findall(plain))
            continue
        if key in _RUNTIMES:
            given = _DOCKER.sub("", given, count=1) if _DOCKER.match(given) else ""
        if given and not is_document(given) and _is_reference(given):
            yield leaf, given


def _is_reference(given: str) -> bool:
    named = "/" in given or ":" in given
    return named and is_plausible(given) and not _NO_CONTAINERS.match(given)


def _bases(given: str) -> Iterator[str]:
    """Images that a build begins with or runs, but for its own stages and what is told later."""
    stages: set[str] = {"scratch"}
    for base, stage, run in _BASE.findall(given):
        reference = base or run
        if reference not in stages and "$" not in reference and is_plausible(reference):
            yield reference
        stages.add(stage)
