"""Settings of the ``local`` platform: one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal

from pydantic import Field

from falaj.components.specification.limits import DATA_CLASS, Between, TextRule
from falaj.components.specification.workload_bounds import bound
from falaj.stacks.settings.section import Section

#: What needs no file: 1,797 scans that ship inside scikit-learn.
DIGITS: Final = "digits"
TABLES: Final = (".csv", ".parquet")
HOST: Final = TextRule(
    r"^[A-Za-z0-9*][A-Za-z0-9.-]{0,251}$",
    "a host's name of letters, digits, '.' and '-', or one that starts with '*'",
    "models.example.ae",
)
MODEL: Final = TextRule(
    r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$",
    "1 to 63 lower-case letters, digits and '-', not at either end",
    "churn",
)
#: Paths and columns: any text that isn't blank.
Named = Annotated[str, TextRule(r"^.*\S.*$", "text that is not empty", "digits")]


class SplitSettings(Section):
    """How the rows are divided into those that are learned from and those that judge."""

    described_by: ClassVar = "falaj.components.local.dataset.DatasetArgs"
    seed: Annotated[int, bound("dataset", "seed")] = 7
    holdout: Annotated[float, bound("dataset", "holdout")] = 0.2


class TrainingSettings(Section):
    """Hyperparameters; one that is left out takes the default of the data's model family."""

    described_by: ClassVar = "falaj.components.local.training_run.TrainingRunArgs"
    epochs: Annotated[int, bound("training", "epochs")] | None = None
    batch_size: Annotated[int, bound("training", "batch_size")] | None = None
    learning_rate: Annotated[float, bound("training", "learning_rate")] | None = None
    weight_decay: Annotated[float, bound("training", "weight_decay")] | None = None
    patience: Annotated[int, bound("training", "patience")] | None = None
    gradient_clip: Annotated[float, bound("training", "gradient_clip")] | None = None
    width: Annotated[int, bound("training", "width")] | None = None
    seed: Annotated[int, bound("training", "seed")] | None = None
    processes: Annotated[int, bound("training", "processes")] = 1
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"


class OptimizationSettings(Section):
    """Quantisation to 8 bits, which has to pay in speed and may cost little accuracy."""

    described_by: ClassVar = "falaj.components.local.model_package.ModelPackageArgs"
    quantise: Literal["auto", "never"] = "auto"
    max_accuracy_drop: Annotated[float, bound("optimization", "max_accuracy_drop")] = 0.5
    """How much quantisation may cost, in percentage points of accuracy; for regression in percent
    of the RMSE."""


class ServiceSettings(Section):
    """The server of the model."""

    described_by: ClassVar = "falaj.components.local.inference_service.InferenceServiceArgs"
    host: Literal["127.0.0.1", "0.0.0.0", "::1", "::"] = "127.0.0.1"  # noqa: S104 - the stack's own choice
    """Address to listen on: this machine alone, or all of its networks."""
    port: Annotated[int, Between(1024, 65_535)] = 8443
    """Port to listen on, one of its own for each stack of a machine; another one restarts the
    server."""
    names: list[Annotated[str, HOST]] = Field(default_factory=list)
    """Further names of the machine that its certificate is valid for."""
    workers: Annotated[int, bound("service", "workers")] = 1
    """Worker processes, each with the model."""
    threads: Annotated[int, bound("service", "threads")] = 1
    """Threads of each worker."""
    max_rows: Annotated[int, bound("service", "max_rows")] = 1_024
    """Most rows in a request."""
    max_body_bytes: Annotated[int, bound("service", "max_body_bytes")] = 8 << 20
    """Largest request, in bytes."""
    drain_seconds: Annotated[int, bound("service", "drain_seconds")] = 10
    """How long an old version may finish its requests, in seconds."""


class KeySettings(Section):
    """The keys that encrypt and sign what the stack keeps."""

    rotation: Annotated[int, Between(0, 1_000_000)] = 0
    """Raise it by one to make a new key and re-wrap everything with it."""


class LocalSettings(Section):
    """Everything that a stack of the ``local`` platform may say."""

    platform: Literal["local"]
    """Where the stack runs: ``local`` is this machine."""
    data_class: Annotated[str, DATA_CLASS] = "internal"
    """Class of the data, stricter upwards; kept with each model."""
    dataset: Named = DIGITS
    """``digits`` (1,797 scans that ship inside scikit-learn), or the path of a .csv or .parquet
    file, from the project's folder. A changed file is another dataset."""
    target: Named | None = None
    """Column of the table to predict; a table needs one, digits take none."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """What is learned; ``auto`` decides it by the target column."""
    model: Annotated[str, MODEL] | None = None
    """The model's name in the registry and in URLs. Default: made from the dataset's."""
    keep_versions: Annotated[int, Between(2, 1_000)] = 5
    """Versions of the model to keep; the served one and the one before it are always kept."""
    retain: bool = False
    """Whether data, keys and models stay when the stack is brought down."""
    split: SplitSettings = SplitSettings()
    training: TrainingSettings = TrainingSettings()
    optimization: OptimizationSettings = OptimizationSettings()
    service: ServiceSettings = ServiceSettings()
    keys: KeySettings = KeySettings()

    @property
    def model_name(self) -> str:
        """The model's name in the registry and in URLs; by default made from the dataset's."""
        if self.model is not None:
            return self.model
        stem = "".join(c if c.isalnum() and c.isascii() else "-" for c in Path(self.dataset).stem)
        return stem.lower().strip("-")[:63].strip("-") or "model"

    def dataset_source(self, root: Path) -> str:
        """``digits``, or the file's absolute path; ``root`` is the project's folder."""
        if self.dataset == DIGITS:
            return self.dataset
        return str((root / Path(self.dataset).expanduser()).resolve())
