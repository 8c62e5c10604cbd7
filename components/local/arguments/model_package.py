"""What `falaj.components.local.ModelPackage` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NAME, PATH, REPLACES, KeptArgs
from falaj.components.specification.arguments import Default, Input, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between
from falaj.components.specification.packaging import PackagingArgs
from falaj.components.specification.workload_bounds import bound, choice

DATA_CLASS: Final = choice("optimization", "data_class")
KEEP_VERSIONS: Final = Between(2, 1_000)
KEPT_VERSIONS: Final = Default(5)
_DROP: Final = bound("optimization", "max_accuracy_drop")
ENGINE: Final = choice("optimization", "engine")


@described
class ModelPackageArgs(KeptArgs):
    """Arguments of `ModelPackage`."""

    model: Annotated[Input[str], NAME, REPLACES]
    """Name of the model in the registry and in URLs."""
    run: Annotated[Input[str], PATH]
    """Folder of the training run (``TrainingRun.path``); another run is another version."""
    dataset: Annotated[Input[str], PATH]
    """Folder of the snapshot (``Dataset.path``)."""
    keyring: NotRequired[Annotated[Input[str], PATH]]
    """Folder of the key ring (``KeyRing.path``) that signs and encrypts. Default: none, which the
    registry refuses."""
    accept: NotRequired[Annotated[Input[str], SameAs(PackagingArgs, "accept")]]
    """Nor does ``better`` take one that is worse than the version that serves."""
    quantise: NotRequired[Annotated[Input[str], SameAs(PackagingArgs, "quantise")]]
    engine: NotRequired[Annotated[Input[str], ENGINE, Default(ENGINE.default)]]
    """What runs the model: ``auto`` measures OpenVINO beside ONNX Runtime where it is installed
    (the extra ``openvino``) and takes it where it is clearly faster and accurate enough."""
    max_accuracy_drop: NotRequired[
        Annotated[Input[float], Default(_DROP.default), SameAs(PackagingArgs, "max_accuracy_drop")]
    ]
    threads: NotRequired[Annotated[Input[int], bound("optimization", "threads"), Default(1)]]
    """Threads that latencies are measured with."""
    data_class: NotRequired[Annotated[Input[str], DATA_CLASS, Default(DATA_CLASS.default)]]
    """Class of the data that the model has learnt from, stricter upwards; kept in the manifest."""
    keep_versions: NotRequired[Annotated[Input[int], KEEP_VERSIONS, KEPT_VERSIONS]]
    """Versions of the model to keep; the served one and the one before it are always kept."""
