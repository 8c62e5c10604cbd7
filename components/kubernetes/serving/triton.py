"""Triton, which runs a model on GPUs and answers nobody but the proxy beside it."""

from typing import Any, Final

from falaj.components.kubernetes.serving import paths
from falaj.components.kubernetes.serving.containers import container, resources
from falaj.components.kubernetes.serving.specification import InferenceServiceSpec

#: What the server's own requests use is left; who may see or change models, or map memory of
#: others, needs a header that nobody has. Shared memory was the root of CVE-2025-23319, -23320 and
#: -23334. https://github.com/triton-inference-server/server/blob/main/docs/customization_guide/
#: inference_protocols.md#limit-endpoint-access-beta
_CLOSED: Final = "model-repository,shared-memory,trace,logging"


def triton(spec: InferenceServiceSpec) -> dict[str, Any]:
    """The container: it starts before the proxy and ends after it.

    It has no probes: the kubelet can't reach the loopback interface, and the proxy's readiness is
    Triton's.
    """
    size = spec.size
    gpus = {size.gpu_resource.replace("/", "__"): size.gpus}
    # What lies in the memory file system counts as memory of who wrote it, or of the pod.
    memory = size.memory_mib + spec.package.model_mib
    found = container(
        "triton", spec.images["triton"], command(spec),
        {paths.MODELS: "models:ro", "/tmp": "tmp"},  # noqa: S108
        resources(size.cpus - min(1.0, size.cpus / 2), memory, 256, **gpus),
    )  # fmt: skip
    return {**found, "restartPolicy": "Always"}


def command(spec: InferenceServiceSpec) -> list[str]:
    """Triton's command line: one model, loopback only, nothing that changes or shares anything."""
    return [
        "tritonserver",
        f"--model-repository={paths.MODELS}/repository",
        "--model-control-mode=explicit",
        f"--load-model={spec.model}",
        "--disable-auto-complete-config",
        "--exit-on-error=true",
        "--allow-http=true",
        "--http-address=127.0.0.1",
        "--http-port=8000",
        # A key that is drawn anew with each start would need a shell; this one opens nothing that
        # is reachable from outside of the pod.
        f"--http-restricted-api={_CLOSED}:falaj-closed=closed",
        "--allow-grpc=false",
        "--allow-metrics=false",
        f"--exit-timeout-secs={spec.operation.drain_seconds}",
    ]
