"""Batch inference: a packaged model's predictions for files of a claim, in shares side by side."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, NotRequired

import pulumi

from falaj.components.catalogue.clusters import MODEL_REPOSITORIES, SECRET_STORE
from falaj.components.kubernetes._key_ring import BASE, KEY_RING, KEYS
from falaj.components.kubernetes._objects import Manifest, declare, token
from falaj.components.kubernetes._pods import PACKAGE_KEYS
from falaj.components.kubernetes._validation import RELATIVE_PATH
from falaj.components.kubernetes.training.arguments import (
    DEFAULT_QUEUE,
    PARALLEL,
    RETRIES,
    AdmittedArgs,
    KeyRing,
    Run,
)
from falaj.components.kubernetes.training.jobs import (
    add_key_ring,
    independent_job,
    network_policy,
    ring_secret,
)
from falaj.components.kubernetes.training.placement import is_gpu_flavor
from falaj.components.kubernetes.training.pods import (
    DATA,
    INDEX,
    RUNS,
    first,
    index_variable,
    template,
)
from falaj.components.kubernetes.training_job import checked_ring, checked_run
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    DEFAULT_PACKAGE_MIB,
    DIGEST,
    OBJECT,
    PACKAGE_MIB,
)
from falaj.components.specification.model_names import PUBLISHED_MODEL, VERSION
from falaj.components.specification.predictions import PredictedRowsArgs
from falaj.components.specification.workload_bounds import bound, choice

_FORMAT: Final = choice("batch", "format")
CONTAINER: Final = "predict"
_ENCODING: Final = re.compile(r"^[A-Za-z0-9_-]{1,32}$")
_PACKAGE: Final = "/package"
_WORK: Final = f"{BASE}/work"
_REGISTRY: Final = f"{_WORK}/registry"
_ROOM_MIB: Final = 256


@described
class BatchInferenceArgs(AdmittedArgs):
    """Arguments of `BatchInference`."""

    inputs: list[str]
    """What is predicted: .csv, .jsonl and .parquet files, folders of them and dataset snapshots,
    below the claim of ``data``."""
    data: Annotated[str, OBJECT]
    """Name of the volume claim with the input, mounted read-only at ``/data``."""
    results: NotRequired[Annotated[str, OBJECT]]
    """Name of the volume claim that predictions are kept in, sealed: a file system that many pods
    write to (`StorageClasses` has ``falaj-files``). Default: that of ``data``."""
    model: Annotated[str, PUBLISHED_MODEL]
    """Name of the model, whose versions are ``models/<name>`` below ``registry``."""
    version: Annotated[int, VERSION]
    """Version of the model."""
    package_digest: str
    """Digest of the version's image, which ``falaj models push`` prints: a tag could be moved."""
    keys_digest: NotRequired[str]
    """Digest of the image with the version's wrapped keys. Default: the package's own holds
    them."""
    key_secret: str
    """Entry of the secret store that holds a key ring, named after the tenant
    (``<tenant>/batch-keys``; on AKS ``<tenant>--batch-keys``): the text that ``python -m
    falaj.workloads.registry keyring pack`` writes. It opens package and sealed input, and seals
    the predictions."""
    secret_store: NotRequired[Annotated[str, OBJECT, Default(SECRET_STORE)]]
    """Name of the `ClusterSecretStore` of External Secrets."""
    format: NotRequired[Annotated[str, _FORMAT, Default("parquet")]]
    """What predictions are written as."""
    keep: NotRequired[Annotated[list[str], SameAs(PredictedRowsArgs, "keep")]]
    encoding: NotRequired[Annotated[str, SameAs(PredictedRowsArgs, "encoding")]]
    decimal: NotRequired[Annotated[str, SameAs(PredictedRowsArgs, "decimal")]]
    skip_bad_rows: NotRequired[Annotated[bool, SameAs(PredictedRowsArgs, "skip_bad_rows")]]
    shares: NotRequired[Annotated[int, bound("batch", "shards"), Default(1)]]
    """Equal shares of the rows, each a pod and a file."""
    parallel: NotRequired[Annotated[int, PARALLEL, Default(4)]]
    """Pods at a time, where the quota has room; fewer where it hasn't."""
    retries: NotRequired[Annotated[int, RETRIES, Default(3)]]
    """How often a pod is started again after faults of its machine; it goes on behind what was
    done."""
    model_mib: NotRequired[Annotated[int, PACKAGE_MIB, Default(DEFAULT_PACKAGE_MIB)]]
    """Size of the package at most, in MiB: bounds the volume that holds it, sealed."""
    queue: NotRequired[Annotated[str, OBJECT, Default(DEFAULT_QUEUE)]]
    """Kueue's queue in the namespace. A change of it replaces the job."""


@dataclass(frozen=True, kw_only=True)
class BatchInferenceSpec:
    """The arguments of `BatchInference`, checked."""

    run: Run
    ring: KeyRing
    inputs: tuple[str, ...]
    model: str
    version: int
    package_digest: str
    keys_digest: str
    """Empty where the package's image holds them."""
    options: tuple[str, ...]
    """Of the command, by the arguments that it takes as they are."""
    format: str
    shares: int
    parallel: int
    retries: int
    model_mib: int


def check(name: str, args: BatchInferenceArgs) -> BatchInferenceSpec:
    """Check the arguments of a `BatchInference`.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"BatchInference {name!r}")
    given: Mapping[str, Any] = {key: value for key, value in args.items() if value is not None}
    checked = errors.checked(given, BatchInferenceArgs)
    run = _run(name, given, checked, errors)
    ring = checked_ring(given, checked, run, errors)
    inputs = errors.texts("inputs", given["inputs"]) if "inputs" in given else ()
    if not inputs:
        errors.say("inputs", "missing; name at least one file or folder below the claim of data")
    for each in inputs:
        if not RELATIVE_PATH.match(each):
            errors.add("inputs", each, "a path below the claim of data, without '..'")
    for argument in ("package_digest", "keys_digest"):
        digest = given.get(argument)
        if (digest is not None or argument == "package_digest") and not DIGEST.allows(digest):
            errors.add(
                argument, digest, "sha256: and 64 of 0-9 and a-f",
                "it is the digest of an image in the registry, as a tag could be moved",
            )  # fmt: skip
    options = _options(given, checked, errors)
    errors.raise_if_any()
    if run is None or ring is None:
        raise AssertionError("what can't be used was refused")
    shares: int = checked["shares"]
    return BatchInferenceSpec(
        run=run, ring=ring, inputs=inputs, model=checked["model"], version=checked["version"],
        package_digest=str(given["package_digest"]),
        keys_digest=str(given.get("keys_digest", "")), options=options, format=checked["format"],
        shares=shares, parallel=min(checked["parallel"], shares), retries=checked["retries"],
        model_mib=checked["model_mib"],
    )  # fmt: skip


def _run(
    name: str, given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> Run | None:
    """What its pods have in common with those that train."""
    flavor = str(given.get("flavor", ""))
    if is_gpu_flavor(flavor):
        errors.add("flavor", flavor, "nodes without GPUs, such as cpu-x86-64")
        return None
    if checked["data"] is None or errors.has("data", "results"):
        return None
    # Predictions are kept where runs are, and nobody asks a pod for figures.
    kept = {"checkpoints": checked["results"] or checked["data"], "telemetry": False}
    return checked_run(name, given, {**checked, **kept}, errors, needs_dataset=False)


def _options(
    given: Mapping[str, Any], checked: Mapping[str, Any], errors: ArgumentErrors
) -> tuple[str, ...]:
    found: list[str] = []
    for column in checked["keep"] or ():
        # Kubernetes takes "$(NAME)" for a variable and "$$" for one of both.
        found.append(f"--keep={column.replace('$', '$$')}")
    encoding = given.get("encoding")
    if encoding is not None:
        if not (isinstance(encoding, str) and _ENCODING.match(encoding)):
            errors.add("encoding", encoding, "the name of an encoding, such as windows-1256")
        found += ["--encoding", str(encoding)]
    if checked["decimal"] is not None:
        found += ["--decimal", str(checked["decimal"])]
    if checked["skip_bad_rows"]:
        found.append("--skip-bad-rows")
    return tuple(found)


def manifests(spec: BatchInferenceSpec) -> list[Manifest]:
    """An indexed Job, a share for each index, its key ring, and who may reach it: nobody."""
    run = spec.run
    return [
        network_policy(run, peers=False),
        ring_secret(run, spec.ring),
        independent_job(run, spec.shares, spec.parallel, spec.retries, pod(spec)),
    ]


def pod(spec: BatchInferenceSpec) -> dict[str, Any]:
    """The template of a share's pod."""
    run = spec.run
    found = template(run, command(spec), index_variable(), {})
    add_key_ring(found, run, spec.ring)
    body = found["spec"]
    (container,) = body["containers"]
    container["name"] = CONTAINER
    container["volumeMounts"].append({"name": "work", "mountPath": _WORK})
    mounts: list[dict[str, Any]] = [
        {"name": "package", "mountPath": _PACKAGE, "readOnly": True},
        {"name": "keys", "mountPath": KEYS},
        {"name": "work", "mountPath": _WORK},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    body["volumes"] += [
        {"name": "work", "emptyDir": {"sizeLimit": f"{_ROOM_MIB + spec.model_mib}Mi"}},
        {"name": "package", **_image(spec, spec.package_digest)},
    ]
    if spec.keys_digest:
        mounts.append({"name": "package-keys", "mountPath": PACKAGE_KEYS, "readOnly": True})
        body["volumes"].append({"name": "package-keys", **_image(spec, spec.keys_digest)})
    taking = first("package", spec.ring.image, package_command(spec), mounts)
    # Twice the package: its sealed bytes and, to be checked, the open ones.
    size = {
        "cpu": "1",
        "memory": f"{_ROOM_MIB + 2 * spec.model_mib}Mi",
        "ephemeral-storage": f"{_ROOM_MIB + spec.model_mib}Mi",
    }
    taking["resources"] = {"requests": dict(size), "limits": dict(size)}
    body["initContainers"].append(taking)
    return found


def _image(spec: BatchInferenceSpec, digest: str) -> dict[str, Any]:
    """A volume of an image among the model's versions."""
    repository = f"{MODEL_REPOSITORIES}/{spec.model}"
    reference = spec.run.placed.image(f"{repository}@{digest}")
    return {"image": {"reference": reference, "pullPolicy": "IfNotPresent"}}


def package_command(spec: BatchInferenceSpec) -> list[str]:
    """Take the sealed package over, once every byte of it is what was signed."""
    return [
        "python", "-m", "falaj.workloads.registry", "import", "--registry", _REGISTRY,
        "--model", spec.model, "--version", str(spec.version), "--from", _PACKAGE,
        "--keyring", KEY_RING,
        *(["--keys", f"{PACKAGE_KEYS}/keys.json"] if spec.keys_digest else []),
    ]  # fmt: skip


def command(spec: BatchInferenceSpec) -> list[str]:
    """Predict a share; its number is the pod's index, which Kubernetes tells it."""
    return [
        "python", "-m", "falaj.workloads.batch", "run",
        "--registry", _REGISTRY, "--model", spec.model, "--version", str(spec.version),
        "--keyring", KEY_RING,
        "--output", f"{RUNS}/{spec.run.name}/share-$({INDEX}).{spec.format}",
        "--shard", f"$({INDEX})/{spec.shares}",
        *spec.options,
        "--progress", "json", "--json",
        # What is there of the same input is taken as it is; of another one it is replaced.
        "--overwrite", "--", *(f"{DATA}/{each}" for each in spec.inputs),
    ]  # fmt: skip


class BatchInference(pulumi.ComponentResource):
    """Predicts rows of files by a signed, encrypted package; the predictions are sealed.

    Rows are divided into equal shares, of which each is a pod of an indexed Job and a file. A pod
    that was evicted or killed goes on behind what it has done.
    """

    results_folder: pulumi.Output[str]
    """Folder of the predictions in the claim of results."""

    def __init__(
        self, name: str, args: BatchInferenceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check(name, args)
        super().__init__(token("BatchInference"), name, None, opts)
        objects = manifests(spec)
        jobs = [each for each in objects if each["kind"] == "Job"]
        declare(self, name, [each for each in objects if each["kind"] != "Job"])
        declare(self, name, jobs, replace_on_changes=["spec"], delete_before_replace=True)
        self.results_folder = pulumi.Output.from_input(spec.run.name)
        self.register_outputs({"results_folder": self.results_folder})
