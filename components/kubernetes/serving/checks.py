"""Checks of an inference service's arguments."""

import re
from collections.abc import Mapping
from typing import Any, Final

from falaj.components.kubernetes._images import resolve
from falaj.components.kubernetes._placed import InCluster, check_in_cluster
from falaj.components.kubernetes.serving.access_checks import checked_access
from falaj.components.kubernetes.serving.arguments import InferenceServiceArgs
from falaj.components.kubernetes.serving.numbers import number
from falaj.components.kubernetes.serving.scaling_checks import checked_scaling, checked_spill
from falaj.components.kubernetes.serving.specification import (
    InferenceServiceSpec,
    Operation,
    Package,
    Size,
)
from falaj.components.kubernetes.serving.version_checks import checked_versions
from falaj.components.specification.refusals import Refusals

TIERS: Final = ("cpu", "gpu")
SOURCES: Final = ("image", "claim")
#: A service's name starts names of objects: with "-v" and the version at most 63 in all.
_NAME: Final = re.compile(r"^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$")
#: falaj.workloads.registry's rule for names of models.
_MODEL: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")
_REPOSITORY: Final = re.compile(r"^[a-z0-9]+([._/-]+[a-z0-9]+)*$")
_LABEL: Final = re.compile(r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$")
_PATH: Final = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*$")
_MIG: Final = re.compile(r"-(mig-\d+g\.\d+gb)\b")


def check(name: str, args: InferenceServiceArgs) -> InferenceServiceSpec:
    """Check the arguments of an `InferenceService`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    refusals = Refusals(f"InferenceService {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    refusals.names(given, InferenceServiceArgs)
    if not _NAME.match(name):
        refusals.add("name", name, "1 to 40 of a-z, 0-9 and '-', first a letter, last no '-'")
    placed = check_in_cluster(given, refusals)
    model = refusals.text(given, "model")
    if model and not _MODEL.match(model):
        refusals.add("model", model, "1 to 64 letters, digits, '.', '_' and '-'")
    tier = given.get("tier", "cpu")
    refusals.choice("tier", tier, TIERS)
    gpu = tier == "gpu"
    package = _package(given, refusals)
    size = _size(given, placed, gpu, refusals)
    cold = refusals.flag("allow_cold_production", given.get("allow_cold_production", False))
    careful = placed is not None and placed.environment == "production" and not cold
    scaling = checked_scaling(given, careful, refusals)
    spill = checked_spill(name, given, gpu, refusals)
    versions = checked_versions(
        given, refusals, with_digest=package.kind == "image", careful=careful, cold=scaling.to_zero
    )
    access = checked_access(name, given, placed, refusals)
    operation = _operation(given, gpu, refusals)
    images: dict[str, str] = {}
    if placed is not None:
        names = ("falaj-inference", "triton") if gpu else ("falaj-inference",)
        digests = refusals.mapping("images", given["images"]) if "images" in given else None
        images = resolve(placed, names, digests, refusals)
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return InferenceServiceSpec(
        placed, name, model, str(tier), versions, package, size, scaling, access, spill, operation,
        images,
    )  # fmt: skip


def _package(given: Mapping[str, Any], refusals: Refusals) -> Package:
    kind = given.get("package_source", "image")
    refusals.choice("package_source", kind, SOURCES)
    name = refusals.text(given, "package_name")
    allowed = _REPOSITORY if kind == "image" else _LABEL
    if name and not allowed.match(name):
        refusals.add(
            "package_name", name,
            "a repository below the registry, such as models/credit-risk" if kind == "image"
            else "the name of a volume claim",
        )  # fmt: skip
    path = given.get("package_path", "")
    if path and kind != "claim":
        refusals.say("package_path", "is for package_source 'claim'; leave it out")
    elif path and not (isinstance(path, str) and _PATH.match(path)):
        refusals.add("package_path", path, "a folder in the claim, such as registry/models")
    mib = refusals.whole("model_mib", given.get("model_mib", 1024), 1, 1024 * 1024)
    return Package(str(kind), name, str(path), mib)


def _size(
    given: Mapping[str, Any], placed: InCluster | None, gpu: bool, refusals: Refusals
) -> Size:
    flavor = given.get("flavor", "")
    if gpu:
        refusals.needed(given, ("flavor",), "where tier is 'gpu'")
    if flavor and not (isinstance(flavor, str) and _LABEL.match(flavor)):
        refusals.add("flavor", flavor, "a value of the label falaj.io/flavor, such as l4")
        flavor = ""
    cpus = number("cpus", given.get("cpus", 4 if gpu else 2), 0.5, 256, refusals)
    memory = refusals.whole(
        "memory_mib", given.get("memory_mib", 8192 if gpu else 2048), 256, 4 * 1024 * 1024
    )
    for argument in ("gpus", "max_batch"):
        if argument in given and not gpu:
            refusals.say(argument, "is for tier 'gpu'; leave it out, or set tier to 'gpu'")
    if not gpu:
        return Size(cpus, memory, 0, "", str(flavor), 0)
    gpus = refusals.whole("gpus", given.get("gpus", 1), 1, 8)
    batch = refusals.whole("max_batch", given.get("max_batch", 32), 1, 4096)
    resource = _gpu_resource(str(flavor))
    if resource.endswith(".shared") and placed and placed.data_class == "restricted":
        refusals.add(
            "flavor", flavor, "a whole GPU or a MIG slice, where data_class is 'restricted'",
            "pods that share a GPU by time-slicing share its memory unprotected",
        )  # fmt: skip
    return Size(cpus, memory, gpus, resource, str(flavor), batch)


def _gpu_resource(flavor: str) -> str:
    """What the device plugin calls a GPU of this flavour, or the part of one that it names."""
    if found := _MIG.search(flavor):
        return f"nvidia.com/{found[1]}"
    return "nvidia.com/gpu.shared" if "-time-slicing-" in flavor else "nvidia.com/gpu"


def _operation(given: Mapping[str, Any], gpu: bool, refusals: Refusals) -> Operation:
    names: dict[str, str] = {}
    for argument, default in (("priority_class", "falaj-high"), ("audit_claim", "")):
        names[argument] = str(given.get(argument, default))
        if names[argument] and not _LABEL.match(names[argument]):
            refusals.add(argument, names[argument], "the name of an object in the cluster")
    return Operation(
        names["priority_class"],
        names["audit_claim"],
        refusals.whole("start_seconds", given.get("start_seconds", 900 if gpu else 300), 30, 7200),
        refusals.whole("drain_seconds", given.get("drain_seconds", 30), 1, 600),
        refusals.whole("max_body_mib", given.get("max_body_mib", 8), 1, 1024),
        refusals.whole("max_rows", given.get("max_rows", 1024), 1, 65536),
    )
