"""vLLM's container in the GPU tier: it generates texts for the server beside it.

It is asked for tokens by their numbers, over the loopback interface, and has no vocabulary. Its
options and variables are those of vLLM 0.33: https://docs.vllm.ai/en/latest/cli/serve/,
https://docs.vllm.ai/en/latest/configuration/env_vars/,
https://docs.vllm.ai/en/latest/usage/security/
"""

from typing import Any, Final

from falaj.components.kubernetes._objects import format_number
from falaj.components.kubernetes._pods import unprivileged
from falaj.components.kubernetes.inference_service.arguments import (
    EngineSettings,
    InferenceServiceSpec,
)

IMAGE: Final = "vllm"
SCRATCH: Final = "/run/falaj/engine"
"""What it compiles, and its caches: files that can be run, so that the pod alone has them."""
SHARED: Final = "/dev/shm"  # noqa: S108 - where the processes of several GPUs meet
SCRATCH_MIB: Final = 4_096
SHARED_MIB: Final = 1_024
_QUIET: Final = {
    # It asks nobody for anything, and tells nobody of itself.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    # Processes of several GPUs speak to each other in plain.
    "VLLM_HOST_IP": "127.0.0.1",
    # The user has a number, and no name in the image.
    "USER": "falaj",
    "HOME": SCRATCH,
    "TMPDIR": SCRATCH,
    "VLLM_CACHE_ROOT": f"{SCRATCH}/vllm",
    "VLLM_CONFIG_ROOT": f"{SCRATCH}/config",
    "TRITON_CACHE_DIR": f"{SCRATCH}/triton",
    "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
}


def container(
    spec: InferenceServiceSpec, engine: EngineSettings, models: str, resources: dict[str, Any]
) -> dict[str, Any]:
    """Return the container: it starts before the server beside it and ends after it.

    It has no probes, as the kubelet can't reach the loopback interface: the server's readiness is
    its own.

    Args:
        spec: of the service.
        engine: how it runs the model.
        models: the folder that the model's folder is in.
        resources: requests and limits.
    """
    mounts = [
        {"name": "models", "mountPath": models, "readOnly": True},
        {"name": "engine", "mountPath": SCRATCH},
        {"name": "shared", "mountPath": SHARED},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108
    ]
    return {
        "name": IMAGE,
        "image": spec.images[IMAGE],
        "command": _command(spec, engine, models),
        "env": [{"name": name, "value": value} for name, value in _QUIET.items()],
        "resources": resources,
        "securityContext": unprivileged(),
        "volumeMounts": mounts,
        "restartPolicy": "Always",
    }


def _command(spec: InferenceServiceSpec, engine: EngineSettings, models: str) -> list[str]:
    """One model, loopback only, no logs of requests, nothing that is looked up anywhere."""
    length = engine.max_model_length
    return [
        "vllm", "serve", f"{models}/{spec.model}",
        f"--served-model-name={spec.model}",
        "--host=127.0.0.1", "--port=8000",
        # Weights alone: none of a form that can hold code.
        "--load-format=safetensors",
        "--skip-tokenizer-init",
        "--generation-config=vllm",
        f"--dtype={engine.precision}",
        f"--tensor-parallel-size={spec.size.gpus}",
        f"--gpu-memory-utilization={format_number(engine.gpu_memory_utilization)}",
        *([f"--max-model-len={length}"] if length else []),
        "--no-enable-log-requests", "--disable-uvicorn-access-log", "--uvicorn-log-level=warning",
        "--disable-log-stats", "--disable-fastapi-docs",
    ]  # fmt: skip


def volumes() -> list[dict[str, Any]]:
    """Return what it writes into: scratch on the node's disk, and memory for its processes."""
    memory = {"medium": "Memory", "sizeLimit": f"{SHARED_MIB}Mi"}
    return [
        {"name": "engine", "emptyDir": {"sizeLimit": f"{SCRATCH_MIB}Mi"}},
        {"name": "shared", "emptyDir": memory},
    ]
