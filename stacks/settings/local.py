"""Settings of the ``local`` platform: one machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from falaj.stacks.errors import SettingsError
from falaj.stacks.settings.section import DataClass, Section

HostName = Annotated[str, Field(pattern=r"^[A-Za-z0-9*]([A-Za-z0-9.-]{0,251})$")]


class SplitSettings(Section):
    """How the rows are divided: ``holdout`` is the share that training never sees."""

    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 7
    holdout: Annotated[float, Field(ge=0.05, le=0.5)] = 0.2


class TrainingSettings(Section):
    """Hyperparameters; one that is left out takes the default of the data's model family."""

    epochs: Annotated[int, Field(ge=1, le=10_000)] | None = None
    batch_size: Annotated[int, Field(ge=1, le=65_536)] | None = None
    learning_rate: Annotated[float, Field(gt=0, le=10)] | None = None
    weight_decay: Annotated[float, Field(ge=0, le=10)] | None = None
    patience: Annotated[int, Field(ge=1, le=10_000)] | None = None
    gradient_clip: Annotated[float, Field(gt=0, le=1_000_000)] | None = None
    width: Annotated[int, Field(ge=4, le=4_096)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"


class OptimizationSettings(Section):
    """Quantisation: ``max_accuracy_drop`` is in percentage points (of RMSE for regression)."""

    quantise: Literal["auto", "never"] = "auto"
    max_accuracy_drop: Annotated[float, Field(ge=0, le=100)] = 0.5


class ServiceSettings(Section):
    """The server: it listens on ``host`` and ``port``; workers and threads are per machine."""

    host: Literal["127.0.0.1", "0.0.0.0", "::1", "::"] = "127.0.0.1"  # noqa: S104 - the stack's own choice
    port: Annotated[int, Field(ge=1024, le=65_535)] = 8443
    names: list[HostName] = Field(default_factory=list)
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    max_rows: Annotated[int, Field(ge=1, le=1_000_000)] = 1_024
    max_body_bytes: Annotated[int, Field(ge=1_024, le=1 << 30)] = 8 << 20
    drain_seconds: Annotated[int, Field(ge=1, le=600)] = 10


class KeySettings(Section):
    """Keys: raise ``rotation`` by one to make a new key and re-wrap everything with it."""

    rotation: Annotated[int, Field(ge=0, le=1_000_000)] = 0


class LocalSettings(Section):
    """Everything that a stack of the ``local`` platform may say."""

    platform: Literal["local"]
    data_class: DataClass = "internal"
    dataset: str = "digits"
    target: str | None = None
    task: Literal["auto", "classification", "regression"] = "auto"
    model: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] | None = None
    keep_versions: Annotated[int, Field(ge=2, le=1_000)] = 5
    retain: bool = False
    split: SplitSettings = SplitSettings()
    training: TrainingSettings = TrainingSettings()
    optimization: OptimizationSettings = OptimizationSettings()
    service: ServiceSettings = ServiceSettings()
    keys: KeySettings = KeySettings()

    @field_validator("dataset", "target")
    @classmethod
    def _not_blank(cls, value: str | None) -> str | None:
        if value is not None and not value.strip():
            raise ValueError("must not be empty")
        return value

    @property
    def model_name(self) -> str:
        """The model's name in the registry and in URLs; by default made from the dataset's."""
        if self.model is not None:
            return self.model
        stem = "".join(c if c.isalnum() and c.isascii() else "-" for c in Path(self.dataset).stem)
        return stem.lower().strip("-")[:63].strip("-") or "model"

    def dataset_source(self, root: Path) -> str:
        """``digits``, or the file's absolute path; ``root`` is the project's folder."""
        if self.dataset == "digits":
            return self.dataset
        return str((root / Path(self.dataset).expanduser()).resolve())


def check_combinations(settings: LocalSettings, root: Path, stack: str) -> None:
    """Refuse keys that contradict each other, or a dataset that is not there.

    Raises:
        SettingsError: names the key, the value and what is allowed.
    """
    if settings.dataset == "digits":
        if settings.target is not None:
            raise SettingsError(
                f"falaj:target: given {settings.target!r}, but the dataset digits has a target of "
                "its own\n  remove it with: "
                f"pulumi config rm falaj:target -s {stack}"
            )
        if settings.task == "regression":
            raise SettingsError(
                "falaj:task: given 'regression', but the dataset digits is a classification\n"
                f"  remove it with: pulumi config rm falaj:task -s {stack}"
            )
        return
    source = Path(settings.dataset_source(root))
    if source.suffix.lower() not in {".csv", ".parquet"}:
        raise SettingsError(
            f"falaj:dataset: given {settings.dataset!r}; allowed: digits, or the path of a .csv "
            "or .parquet file"
        )
    if not source.is_file():
        raise SettingsError(
            f"falaj:dataset: there is no file {source}\n"
            "  a relative path starts at the project's folder; set it with: "
            f"pulumi config set falaj:dataset PATH -s {stack}"
        )
    if settings.target is None:
        raise SettingsError(
            f"falaj:target: missing; the dataset {settings.dataset} needs the name of the column "
            f"to predict\n  set it with: pulumi config set falaj:target COLUMN -s {stack}"
        )
