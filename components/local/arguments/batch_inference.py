"""What `falaj.components.local.BatchInference` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NAME, NOT_EMPTY, PATH, REPLACES, KeptArgs
from falaj.components.specification.arguments import Default, Input, SameAs
from falaj.components.specification.described import described
from falaj.components.specification.model_names import VERSION
from falaj.components.specification.predictions import PredictedRowsArgs
from falaj.components.specification.workload_bounds import bound, choice

_FORMAT: Final = choice("batch", "format")


@described
class BatchInferenceArgs(KeptArgs):
    """Arguments of `BatchInference`."""

    name: Annotated[Input[str], NAME, REPLACES]
    """Name of the predictions, in the names of their files."""
    inputs: Input[list[str]]
    """Absolute paths of .csv, .jsonl and .parquet files, folders of them, and dataset snapshots. A
    changed file is another input."""
    model: Annotated[Input[str], NAME, REPLACES]
    """Name of the model (``ModelPackage.model``)."""
    version: Annotated[Input[int], VERSION, REPLACES]
    """Its version (``ModelPackage.version``)."""
    package_digest: Annotated[Input[str], REPLACES]
    """Digest of the version (``ModelPackage.digest``)."""
    keyring: Annotated[Input[str], PATH]
    """Folder of the key ring (``KeyRing.path``): it opens the package, and seals predictions."""
    format: NotRequired[Annotated[Input[str], _FORMAT, Default(_FORMAT.default), REPLACES]]
    """What is written."""
    keep: NotRequired[
        Annotated[
            Input[list[Annotated[str, NOT_EMPTY]]], REPLACES, SameAs(PredictedRowsArgs, "keep")
        ]
    ]
    encoding: NotRequired[
        Annotated[Input[str] | None, NOT_EMPTY, REPLACES, SameAs(PredictedRowsArgs, "encoding")]
    ]
    decimal: NotRequired[
        Annotated[Input[str] | None, REPLACES, SameAs(PredictedRowsArgs, "decimal")]
    ]
    skip_bad_rows: NotRequired[
        Annotated[Input[bool], REPLACES, SameAs(PredictedRowsArgs, "skip_bad_rows")]
    ]
    plain: NotRequired[Annotated[Input[bool], Default(value=False), REPLACES]]
    """Whether the predictions lie unencrypted; refused for ``restricted`` data and sealed
    input."""
    threads: NotRequired[Annotated[Input[int] | None, bound("batch", "threads")]]
    """Threads of the runtime. Default: one for each core. A change of it predicts nothing
    again."""
