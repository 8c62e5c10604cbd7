"""One machine: a dataset becomes a trained, optimised, signed, encrypted and served model."""

from __future__ import annotations

import sys
from pathlib import Path

import pulumi

from falaj.components.local import (
    BatchInference,
    BatchInferenceArgs,
    Certificate,
    CertificateAuthority,
    Daemon,
    Dataset,
    DatasetArgs,
    InferenceService,
    InferenceServiceArgs,
    KeyRing,
    KeyRingArgs,
    LocalProvider,
    ModelPackage,
    ModelPackageArgs,
    TrainingRun,
    TrainingRunArgs,
    Workspace,
)
from falaj.components.local.arguments.inference_service import FurtherModelArgs
from falaj.engine.files import stack_home
from falaj.stacks.settings import LocalSettings
from falaj.stacks.settings.derived import arguments, flattened
from falaj.stacks.settings.local import FurtherModelSettings
from falaj.stacks.settings.paths import resolved
from falaj.stacks.settings.tracking import tracking_args

_CLIENT = "operator"
_WATCH_STOPS_S = 120
"""A retraining that the watch has begun ends with a checkpoint."""


def declare_local(settings: LocalSettings, root: Path) -> None:
    """Register the resources of a local stack and export what its users need.

    Args:
        settings: the validated settings of the stack.
        root: the project's folder, where relative dataset paths start.
    """
    stack = pulumi.get_stack()
    site = str(stack_home(pulumi.get_project(), stack))
    name = settings.model_name
    options = pulumi.ResourceOptions(providers=[LocalProvider("local", {"site": site})])
    workspace = Workspace(
        "workspace",
        {
            "path": site,
            "ports": [settings.service.port],
            "host": settings.service.host,
            "retain": settings.retain,
        },
        options,
    )
    keys = KeyRing(
        "keys",
        {
            "site": workspace.path,
            **arguments(settings.keys, KeyRingArgs),
            "retain": settings.retain,
        },
        options,
    )
    authority = CertificateAuthority(
        "authority",
        {
            "site": workspace.path,
            "common_name": f"falaj {stack}",
            "retain": settings.retain,
        },
        options,
    )
    server = Certificate(
        "server",
        {
            "site": workspace.path,
            "file_name": "server",
            "usage": "server",
            "common_name": "localhost",
            "names": settings.service.names,
            "authority_fingerprint": authority.fingerprint,
        },
        options,
    )
    client = Certificate(
        "client",
        {
            "site": workspace.path,
            "file_name": _CLIENT,
            "usage": "client",
            "common_name": _CLIENT,
            "authority_fingerprint": authority.fingerprint,
        },
        options,
    )
    training = settings.training
    begun = str(resolved(training.start, root)) if training.start is not None else None
    dataset = Dataset(
        "dataset",
        {
            "site": workspace.path,
            "source": settings.dataset_source(root),
            "target": settings.target,
            "feature_tables": settings.features.arguments(root) if settings.features else {},
            "feature_time": settings.features.time if settings.features else None,
            "task": settings.task,
            **arguments(settings.split, DatasetArgs),
            "context": training.context,
            "vocabulary": training.vocabulary,
            "vocabulary_of": begun if settings.is_text(root) else None,
            "keyring": keys.path,
            "retain": settings.retain,
        },
        options,
    )
    run = TrainingRun(
        "run",
        {
            "site": workspace.path,
            "dataset": dataset.path,
            "dataset_digest": dataset.digest,
            "keyring": keys.path,
            **arguments(training, TrainingRunArgs),
            "processes": training.all_processes,
            "shard": training.parallel.shard,
            "tensor": training.parallel.tensor,
            "pipeline": training.parallel.pipeline,
            "teacher": (
                str(resolved(training.teacher, root)) if training.teacher is not None else None
            ),
            "start": begun,
            "code": str(resolved(training.code, root)) if training.code is not None else None,
            "options": training.options or None,
            **tracking_args(training.tracking, root),
            "retain": settings.retain,
        },
        options,
    )
    package = ModelPackage(
        "package",
        {
            "site": workspace.path,
            "model": name,
            "run": run.path,
            "dataset": dataset.path,
            "keyring": keys.path,
            **arguments(settings.optimization, ModelPackageArgs),
            "keep_versions": settings.keep_versions,
            "data_class": settings.data_class,
            "retain": settings.retain,
        },
        options,
    )
    further = settings.service.models
    served: InferenceServiceArgs = {
        "site": workspace.path,
        "name": name,
        "model": package.model,
        "version": package.version,
        "keyring": keys.path,
        **arguments(settings.service, InferenceServiceArgs),
        **flattened(settings.service.drift, InferenceServiceArgs),
        "jobs": settings.service.jobs is not None,
        **flattened(settings.service.jobs, InferenceServiceArgs),
        "shadow": settings.service.shadow is not None,
        **flattened(settings.service.shadow, InferenceServiceArgs),
        **flattened(settings.service.experiment, InferenceServiceArgs),
        "models": {each: _further(section, root) for each, section in further.items()},
        "certificate": server.certificate_path,
        "private_key": server.private_key_path,
        "client_ca": authority.certificate_path,
        "certificate_fingerprint": server.fingerprint,
        "issuer": f"falaj:{stack}",
        "audience": f"falaj:{stack}:{name}",
        "clients": {_CLIENT: ["predict", "observe", "feedback"]},
    }
    service = InferenceService("service", served, options)
    if settings.watch is not None:
        Daemon(
            "watch",
            {
                "site": workspace.path,
                "name": "watch",
                # The settings are read from the stack's file: changed ones need no new start.
                "command": [
                    sys.executable, "-P", "-m", "falaj.stacks.command", "watch",
                    "--stack", stack, "--project", str(root), "--json",
                ],
                "stop_seconds": _WATCH_STOPS_S,
            },
            pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(depends_on=[service])),
        )  # fmt: skip
    batches = {
        each: BatchInference(
            f"batch-{each}",
            {
                "site": workspace.path,
                "name": each,
                "keep": [],
                **arguments(section, BatchInferenceArgs),
                "inputs": [str(resolved(path, root)) for path in section.inputs],
                "model": package.model,
                "version": package.version,
                "package_digest": package.digest,
                "keyring": keys.path,
                "retain": settings.retain,
            },
            options,
        )
        for each, section in settings.batches.items()
    }
    exports: dict[str, pulumi.Input[object]] = {
        "endpoint": pulumi.Output.format(
            "{0}/v2/models/{1}/infer", service.endpoint, package.model
        ),
        "model": package.model,
        "version": package.version,
        "rows": dataset.rows,
        "evaluation": {
            "metric": package.metric_name,
            "accepted": package.accepted,
            "reason": package.reason,
            "float": {
                "metric": package.accuracy_float,
                "sizeBytes": package.size_float,
                "latencyUs": package.latency_float,
            },
            "int8": {
                "metric": package.accuracy_int8,
                "sizeBytes": package.size_int8,
                "latencyUs": package.latency_int8,
            },
            "int4": {
                "metric": package.accuracy_int4,
                "sizeBytes": package.size_int4,
                "latencyUs": package.latency_int4,
            },
        },
        "models": [package.model, *further],
        "caCertificate": authority.certificate_path,
        "clientCertificate": client.certificate_path,
        "issuer": service.issuer,
        "audience": service.audience,
        "serviceConfig": service.config_path,
        "dataset": dataset.path,
        "keyring": keys.path,
        "registry": package.registry,
        "site": workspace.path,
        "batches": {
            each: {"path": made.path, "rows": made.rows, "digest": made.digest}
            for each, made in batches.items()
        },
    }
    for key, value in exports.items():
        pulumi.export(key, value)


def _further(section: FurtherModelSettings, root: Path) -> FurtherModelArgs:
    """A further model, with the folders that its stack has or its settings name."""
    registry, keyring = section.places(root, lambda stack: stack_home(pulumi.get_project(), stack))
    return {
        **arguments(section, FurtherModelArgs),
        "registry": str(registry),
        "keyring": str(keyring),
    }
