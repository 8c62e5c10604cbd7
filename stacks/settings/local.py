"""Settings of the ``local`` platform, one machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import Field

from falaj.components.local.arguments import NAME
from falaj.components.local.arguments.batch_inference import BatchInferenceArgs
from falaj.components.local.arguments.dataset import (
    DIGITS,
    TASK,
    DatasetArgs,
)
from falaj.components.local.arguments.inference_service import (
    ExperimentArgs,
    FurtherModelArgs,
    InferenceServiceArgs,
    JobArgs,
    ShadowArgs,
)
from falaj.components.local.arguments.key_ring import KeyRingArgs
from falaj.components.local.arguments.model_package import (
    DATA_CLASS,
    KEEP_VERSIONS,
    KEPT_VERSIONS,
    ModelPackageArgs,
)
from falaj.components.local.arguments.training_run import (
    MODEL,
    PRECISION,
    TrainingRunArgs,
)
from falaj.components.local.machine import TABLES, TEXTS
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.drift import DriftArgs
from falaj.components.specification.limits import Between, TextRule
from falaj.components.specification.parallel import (
    PARTS,
    PROCESSES,
    Division,
    ParallelArgs,
)
from falaj.components.specification.workload_bounds import form
from falaj.stacks.settings.derived import local_section
from falaj.stacks.settings.feature_tables import FeaturesSettings
from falaj.stacks.settings.paths import Named, is_folder, resolved
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.tracking import TrackingSettings
from falaj.stacks.settings.watching import WatchSettings
from falaj.workloads.bounds import DECODER, IMAGE, LANGUAGE
from falaj.workloads.training import shard_folder, text_folder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.own_code import (
    CLASS_NAME,
    OPTION_FORM,
    OPTION_NAME,
)

HOST: Final = TextRule(
    r"^[A-Za-z0-9*][A-Za-z0-9.-]{0,251}$",
    "a host's name of letters, digits, '.' and '-', or one that starts with '*'",
    "models.example.ae",
)
MODEL_OF_TRAINING: Final = TextRule(
    f"^(?:{'|'.join(MODEL.words)}|{CLASS_NAME.pattern})$",
    f"{', '.join(MODEL.words)}, or a module, ':' and a class in it",
    "mine.network:Network",
)
OPTION: Final = TextRule(f"^{OPTION_NAME.pattern}$", OPTION_FORM, "width")


class SplitSettings(local_section(DatasetArgs, taking=("seed", "holdout"))):
    """How the rows are divided into those that are learned from and those that judge."""


class ParallelSettings(local_section(ParallelArgs)):
    """How processes divide a model among them; multiplied, the numbers are all processes."""


class TextSettings(local_section(DatasetArgs, taking=("context", "vocabulary"))):
    """How a text is cut for a language model."""


class TrainingSettings(
    TextSettings,
    local_section(
        TrainingRunArgs,
        leaving_out=(
            "dataset_digest",
            *PARTS,
            "checkpoint_every",
            "tracking",
            "tracking_file",
            "tracking_experiment",
            "tracking_allow",
        ),
        model=Annotated[str, MODEL_OF_TRAINING],
    ),
):
    """Hyperparameters; one that is left out takes the default of the data's model family."""

    processes: Annotated[int, PROCESSES] | None = None
    """All processes that train. Default: the product of ``parallel``."""
    parallel: ParallelSettings = ParallelSettings.unset()
    # Said or not, a stack's runs are named with it.
    precision: Annotated[str, PRECISION] = PRECISION.default
    teacher: Annotated[Named | None, SameAs(TrainingRunArgs, "teacher")] = None
    """A relative path starts at the project's folder; `falaj runs list` has the folders."""
    start: Named | None = None
    """Folder of a finished run or of a model in Llama's form, from the project's folder, whose
    weights it begins with; how large the model is follows from them, and a text is cut with that
    model's vocabulary. `falaj runs list` has the folders of runs. Default: weights are drawn."""
    code: Named | None = None
    """Folder of the code of a class of your own, from the project's folder; its Python files, and
    the requirements.txt that pins its packages, travel with the model, and other code is another
    training. Needed with a class."""
    options: dict[Annotated[str, OPTION], Any] = Field(default_factory=dict)
    tracking: TrackingSettings | None = None
    """Where the record of the run is sent. Default: it is kept in the run's folder alone."""

    @property
    def decoder(self) -> DecoderSize:
        """How large the layers of a language model are."""
        given = {name: getattr(self, name) for name in DECODER}
        return DecoderSize(**{name: size for name, size in given.items() if size is not None})

    @property
    def division(self) -> Division:
        """Among how many processes one model is divided."""
        parallel = self.parallel
        return Division(parallel.shard, parallel.tensor, parallel.pipeline)

    @property
    def all_processes(self) -> int:
        """How many train; where it isn't said, as many as ``parallel`` takes."""
        if self.processes is not None:
            return self.processes
        return self.division.processes * (self.parallel.data or 1)


class OptimizationSettings(
    local_section(ModelPackageArgs, taking=("accept", "quantise", "engine", "max_accuracy_drop"))
):
    """What the model has to be worth, and its quantisation to 8 or 4 bits, which has to pay in
    speed and may cost little accuracy."""


class DriftSettings(local_section(DriftArgs)):
    """What the server watches of rows and answers."""


class JobSettings(local_section(JobArgs)):
    """Requests that are answered later: how long and how much is kept of them, sealed."""


class ShadowSettings(local_section(ShadowArgs)):
    """A second version beside the one that serves, as ``falaj shadow`` starts and ends it: it gets
    copies of requests, and answers nobody."""


class ExperimentSettings(local_section(ExperimentArgs)):
    """A second version beside the one that serves, as ``falaj experiment`` starts and ends it: it
    answers the requests of a share of a header's values, the same ones always. Calls by gRPC, jobs
    and texts that are generated are for the version that serves."""


class FurtherModelSettings(local_section(FurtherModelArgs)):
    """A model that is served beside the stack's own, under its own name and with scopes of its
    own: of another stack of this project (``stack``), or of any registry (``registry`` and
    ``keyring``). Jobs are taken for all, where there is a section ``jobs``; a shadow and an
    experiment are of the stack's own model alone."""

    stack: Annotated[str, NAME] | None = None
    """The stack that makes it, with its registry and its keys."""
    registry: Annotated[Named | None, SameAs(FurtherModelArgs, "registry")] = None
    """A relative path starts at the project's folder."""
    keyring: Annotated[Named | None, SameAs(FurtherModelArgs, "keyring")] = None
    """A relative path starts at the project's folder."""

    def places(self, root: Path, site: Callable[[str], Path]) -> tuple[Path, Path]:
        """Its registry and its key ring.

        Args:
            root: the project's folder.
            site: the folder of a stack of the project.
        """
        if self.stack is not None:
            own = site(self.stack)
            return own / "registry", own / "keyring"
        return resolved(self.registry or "", root), resolved(self.keyring or "", root)


class ServiceSettings(
    local_section(
        InferenceServiceArgs,
        leaving_out=(
            "name", "model", "version", "certificate_fingerprint", "issuer", "audience", "clients",
            "models",
        ),
    )
):  # fmt: skip
    """The server of the model."""

    host: Literal["127.0.0.1", "0.0.0.0", "::1", "::"] = "127.0.0.1"  # noqa: S104 - the stack's own choice
    """Address to listen on: this machine alone, or all of its networks."""
    port: Annotated[int, Between(1024, 65_535)] = IMAGE["server_port"]
    names: list[Annotated[str, HOST]] = Field(default_factory=list)
    """Further names of the machine that its certificate is valid for."""
    drift: DriftSettings = DriftSettings.unset()
    """What is watched of rows and answers."""
    shadow: ShadowSettings | None = None
    """What a shadow is given. Default: there is none."""
    experiment: ExperimentSettings | None = None
    """What an experiment's candidate answers; not beside a shadow. Default: there is none."""
    models: dict[Annotated[str, form("registry", "model")], FurtherModelSettings] = Field(
        default_factory=dict
    )
    """Further models that the server has, by their names. Default: the stack's own alone."""
    jobs: JobSettings | None = None
    """What is kept of requests that are answered later. Default: none are taken, and what was kept
    is removed."""


class BatchSettings(
    local_section(
        BatchInferenceArgs, leaving_out=("name", "model", "version", "package_digest", "inputs")
    )
):
    """Predictions of the stack's model for files; a new model or a changed file makes them
    anew."""

    inputs: Annotated[list[Named], Field(min_length=1)]
    """Paths of .csv, .jsonl and .parquet files, or folders of them, from the project's folder."""


class KeySettings(local_section(KeyRingArgs)):
    """The keys that encrypt and sign what the stack keeps."""


class LocalSettings(Section):
    """Everything that a stack of the ``local`` platform may say."""

    platform: Literal["local"]
    """Where the stack runs: ``local`` is this machine."""
    data_class: Annotated[str, DATA_CLASS] = DATA_CLASS.default
    """Class of the data, stricter upwards; kept with each model."""
    dataset: Named = DIGITS
    """``digits`` (1,797 scans that ship inside scikit-learn), the path of a .csv or .parquet file,
    of a .txt or .md text that a language model learns, of a .jsonl file of conversations that it
    learns to answer in, of a folder with a folder of pictures for each class, or of a folder of
    texts or of shards (.parquet, .arrow, .jsonl or .tar), which are streamed, as many pictures
    are, from the project's folder. A changed file is another dataset."""
    target: Annotated[Named | None, SameAs(DatasetArgs, "target")] = None
    features: FeaturesSettings | None = None
    """What was known of whom the rows of a table are about. Default: its own columns alone."""
    task: Annotated[str, TASK, SameAs(DatasetArgs, "task")] = TASK.default
    model: Annotated[str, NAME] | None = None
    """The model's name in the registry and in URLs. Default: made from the dataset's."""
    keep_versions: Annotated[int, KEEP_VERSIONS, SameAs(ModelPackageArgs, "keep_versions")] = (
        KEPT_VERSIONS.value
    )
    retain: bool = False
    """Whether data, keys and models stay when the stack is brought down."""
    split: SplitSettings = SplitSettings.unset()
    training: TrainingSettings = TrainingSettings.unset()
    optimization: OptimizationSettings = OptimizationSettings.unset()
    service: ServiceSettings = ServiceSettings.unset()
    batches: dict[Annotated[str, NAME], BatchSettings] = Field(default_factory=dict)
    """Predictions for files, by name. Default: none."""
    keys: KeySettings = KeySettings.unset()
    watch: WatchSettings | None = None
    """The watch over the served models' drift. Default: nobody acts on drift."""

    @property
    def model_name(self) -> str:
        """The model's name in the registry and in URLs; by default made from the dataset's."""
        if self.model is not None:
            return self.model
        stem = "".join(c if c.isalnum() and c.isascii() else "-" for c in Path(self.dataset).stem)
        return stem.lower().strip("-")[:63].strip("-") or "model"

    def dataset_source(self, root: Path) -> str:
        """``digits``, or an absolute path; ``root`` is the project's folder."""
        if self.dataset == DIGITS:
            return self.dataset
        return str(resolved(self.dataset, root))

    def is_table(self, root: Path) -> bool:
        """Whether the dataset is a file with rows, of which newer ones can be there."""
        return self._is_file(root, TABLES)

    def is_text(self, root: Path) -> bool:
        """Whether a language model learns from the dataset: texts, or conversations."""
        if self._is_file(root, TEXTS):
            return True
        source = Path(self.dataset_source(root))
        if self.dataset == DIGITS or not is_folder(source):
            return False
        if holds_shards(source):
            return self.task == LANGUAGE
        return _holds_texts(source)

    def _is_file(self, root: Path, endings: tuple[str, ...]) -> bool:
        source = Path(self.dataset_source(root))
        return source.suffix.lower() in endings and not is_folder(source)


def holds_shards(folder: Path) -> bool:
    """Tell whether a folder holds shards; one that can't be read is told of as one of pictures."""
    try:
        return shard_folder.holds_shards(folder)
    except OSError:
        return False


def _holds_texts(folder: Path) -> bool:
    try:
        return text_folder.holds_texts(folder)
    except OSError:  # as above
        return False
