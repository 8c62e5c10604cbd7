"""What every container of a replica has, and those that get a package ready.

The commands are those that ``falaj up`` uses on one machine.
"""

from typing import Any, Final

from falaj.components.kubernetes.serving import paths
from falaj.components.kubernetes.serving.numbers import shown
from falaj.components.kubernetes.serving.specification import (
    PORT,
    SCRAPER,
    InferenceServiceSpec,
    Version,
)

USER: Final = 65532
"""Whom containers run as: nobody that a node knows."""
UPSTREAM: Final = "http://127.0.0.1:8000"
"""Triton, which only the proxy beside it can reach."""
#: Loading twice the package: the sealed bytes and the open ones.
_PREPARE_MIB: Final = 256


def container(
    name: str, image: str, command: list[str], mounts: dict[str, str], resources: dict[str, Any]
) -> dict[str, Any]:
    """A container that may do nothing but what it is for.

    Args:
        name: its name.
        image: with its digest.
        command: program and arguments.
        mounts: volumes by where they are mounted; those that end in ``:ro`` read-only.
        resources: requests and limits.
    """
    return {
        "name": name,
        "image": image,
        "command": command,
        "env": [
            # Python's own way to say: no files beside the program's, output line by line.
            {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"},
            {"name": "PYTHONUNBUFFERED", "value": "1"},
        ],
        "resources": resources,
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [
            {
                "name": volume.removesuffix(":ro"),
                "mountPath": path,
                **({"readOnly": True} if volume.endswith(":ro") else {}),
            }
            for path, volume in mounts.items()
        ],
    }


def resources(cpus: float, memory_mib: int, scratch_mib: int = 64, **more: int) -> dict[str, Any]:
    """Requests and limits; memory isn't promised twice, so that no replica is killed for it."""
    core = {"memory": f"{memory_mib}Mi", "ephemeral-storage": f"{scratch_mib}Mi"}
    extended = {name.replace("__", "/"): str(count) for name, count in more.items()}
    cpu = {"cpu": f"{round(cpus * 1000)}m"}
    return {"requests": {**cpu, **core, **extended}, "limits": {**cpu, **core, **extended}}


def preparing(spec: InferenceServiceSpec, version: Version) -> list[dict[str, Any]]:
    """The containers that run before the server: keys, package, configuration."""
    image = spec.images["falaj-inference"]
    mib = spec.package.model_mib
    small = resources(0.5, _PREPARE_MIB)
    checked = resources(1, _PREPARE_MIB + 2 * mib, 64 + mib)
    steps = [
        container(
            "keys", image, keys_command(),
            {paths.SECRET: "secret:ro", paths.KEYS: "keys", "/tmp": "tmp"}, small,  # noqa: S108
        ),
        container(
            "package", image, package_command(spec, version),
            {
                paths.PACKAGE: "package:ro", paths.KEYS: "keys", paths.WORK: "work",
                "/tmp": "tmp",  # noqa: S108
            },
            checked,
        ),
    ]  # fmt: skip
    if spec.tier == "gpu":
        steps.append(
            container(
                "unseal", image, unseal_command(spec, version),
                {
                    paths.KEYS: "keys", paths.WORK: "work:ro", paths.MODELS: "models",
                    "/tmp": "tmp",  # noqa: S108
                },
                resources(1, _PREPARE_MIB + 3 * mib),
            )
        )  # fmt: skip
    steps.append(
        container(
            "configure", image, configure_command(spec),
            {paths.WORK: "work", "/tmp": "tmp"},  # noqa: S108
            small,
        )
    )  # fmt: skip
    return steps


def token_mount(spec: InferenceServiceSpec) -> dict[str, str]:
    """The mount of the issuer's public keys, where they aren't the key ring's."""
    return {paths.TOKENS: "tokens:ro"} if spec.access.token_keys else {}


def keys_command() -> list[str]:
    """Lay the key ring out in memory."""
    return _python(
        "registry", "keyring", "unpack", "--path", paths.KEY_RING,
        "--from", f"{paths.SECRET}/{paths.PACKED_KEYS}",
    )  # fmt: skip


def package_command(spec: InferenceServiceSpec, version: Version) -> list[str]:
    """Take the sealed package over, once every byte of it is what was signed."""
    folder = paths.PACKAGE
    if spec.package.kind == "claim":
        parts = (folder, spec.package.path, spec.model, "versions", str(version.number))
        folder = "/".join(part for part in parts if part)
    return _python(
        "registry", "import", "--registry", paths.REGISTRY, "--model", spec.model,
        "--version", str(version.number), "--from", folder, "--keyring", paths.KEY_RING,
    )  # fmt: skip


def unseal_command(spec: InferenceServiceSpec, version: Version) -> list[str]:
    """Open the package into memory, as Triton's repository."""
    return _python(
        "registry", "unseal", "--registry", paths.REGISTRY, "--model", spec.model,
        "--version", str(version.number), "--keyring", paths.KEY_RING,
        "--to", f"{paths.MODELS}/repository", "--layout", "triton",
        "--max-batch", str(spec.size.max_batch), "--gpus", str(spec.size.gpus),
    )  # fmt: skip


def configure_command(spec: InferenceServiceSpec) -> list[str]:
    """Write the server's configuration, checked."""
    access, operation = spec.access, spec.operation
    jwks = f"{paths.TOKENS}/{paths.TOKEN_KEYS}" if access.token_keys else (
        f"{paths.KEY_RING}/{paths.TOKEN_KEYS}"
    )  # fmt: skip
    command = [
        *("--config", paths.CONFIG, "--name", spec.name, "--model", spec.model),
        *("--host", "0.0.0.0", "--port", str(PORT)),  # noqa: S104 - a pod has private addresses
        *("--registry", paths.REGISTRY, "--keyring", paths.KEY_RING),
        *("--certificate", f"{paths.TLS}/tls.crt", "--private-key", f"{paths.TLS}/tls.key"),
        *("--client-ca", f"{paths.TLS}/ca.crt", "--client", f"{SCRAPER}=observe"),
        *("--issuer", access.token_issuer, "--audience", access.token_audience, "--jwks", jwks),
        *("--logs", paths.LOGS, "--state", paths.STATE, "--cpus", shown(spec.size.cpus)),
        *("--max-body-bytes", str(operation.max_body_mib * 1024 * 1024)),
        *("--max-rows", str(min(operation.max_rows, spec.size.max_batch or operation.max_rows))),
        *("--drain-seconds", str(operation.drain_seconds)),
        *("--load-seconds", str(operation.start_seconds)),
    ]
    if access.spilled_from:
        command += ["--client", f"{access.spilled_from}=predict"]
    if spec.tier == "gpu":
        command += ["--upstream", UPSTREAM]
    if spec.spill is not None:
        target = f"{spec.spill.to}-v{spec.spill.version}.{spec.namespace}.svc"
        command += ["--spill-to", f"https://{target}:{PORT}"]
        command += ["--spill-above-ms", shown(spec.spill.above_ms)]
        command += ["--spill-timeout-ms", shown(spec.spill.timeout_ms)]
        command += ["--spill-version", str(spec.spill.version)]
    return _python("inference", "configure", *command)


def serve_command() -> list[str]:
    """Serve until told to leave."""
    return _python("inference", "serve", "--config", paths.CONFIG)


def _python(module: str, *arguments: str) -> list[str]:
    return ["python", "-m", f"falaj.workloads.{module}", *arguments]
