"""Settings of the ``local`` platform, one machine, and their check against the data there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

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
    HOST_ALLOWED,
    LORA_MATRICES,
    MODEL,
    PRECISION,
    TrackingArgs,
    TrainingRunArgs,
)
from falaj.components.local.machine import TABLES, TEXTS
from falaj.components.nearest import nearest
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.drift import DriftArgs
from falaj.components.specification.limits import Between, TextRule
from falaj.components.specification.parallel import (
    OF_LAYERS,
    PARTS,
    PROCESSES,
    RECOMPUTE,
    Division,
    ParallelArgs,
)
from falaj.components.specification.property_names import camel
from falaj.components.specification.tracking import EXPERIMENT, SERVER, TrackedArgs
from falaj.components.specification.workload_bounds import bound, form
from falaj.stacks.settings.derived import local_section
from falaj.stacks.settings.feature_tables import FeaturesSettings, check_features
from falaj.stacks.settings.paths import Named, is_file, is_folder, resolved
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, format_value
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.suggestions import similar_files
from falaj.stacks.settings.watching import WatchSettings, check_watch, refused_host
from falaj.workloads.bounds import DECODER, IMAGE, IMAGE_NETWORKS, LANGUAGE, MODELS_TAKEN
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import picture_folder, shard_folder, text_folder
from falaj.workloads.training.decoder_size import DECODER_WIDTH, DecoderSize
from falaj.workloads.training.header import read_header
from falaj.workloads.training.own_code import (
    CLASS_NAME,
    OPTION_FORM,
    OPTION_NAME,
    check_options,
    find,
    read_folder,
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


_TRACKING_FILE: Final = "mlflow.db"
"""MLflow's own, where nothing else is said, in the folder where it runs."""


class TrackingSettings(Section):
    """Where parameters, figures of epochs and of the held-out part, environment, and digests of
    dataset, code and model are kept for MLflow: a file of this machine, or a server. A change of
    it trains nothing again."""

    file: Annotated[Named | None, SameAs(TrackingArgs, "tracking_file")] = None
    """A relative path starts at the project's folder. Default: mlflow.db there, which ``mlflow
    ui`` shows where it runs in that folder."""
    server: Annotated[str, SERVER] | None = None
    """Address of an MLflow tracking server. Default: the file."""
    experiment: Annotated[Annotated[str, EXPERIMENT] | None, SameAs(TrackedArgs, "experiment")] = (
        None
    )
    secret_file: Annotated[Named | None, SameAs(TrackingArgs, "tracking_secret")] = None
    """A relative path starts at the project's folder."""
    authority: Annotated[Named | None, SameAs(TrackingArgs, "tracking_authority")] = None
    """A relative path starts at the project's folder."""
    allowed_hosts: Annotated[
        list[Annotated[str, HOST_ALLOWED]], SameAs(TrackingArgs, "tracking_allow")
    ] = Field(default_factory=list)


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
    ``keyring``). Jobs, a shadow and an experiment are of the stack's own model alone."""

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
    texts or of shards (.parquet, .arrow, .jsonl or .tar), which are streamed, from the project's
    folder. A changed file is another dataset."""
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
    """The watch over the served model's drift. Default: nobody acts on drift."""

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
        if _holds_shards(source):
            return self.task == LANGUAGE
        return _holds_texts(source)

    def _is_file(self, root: Path, endings: tuple[str, ...]) -> bool:
        source = Path(self.dataset_source(root))
        return source.suffix.lower() in endings and not is_folder(source)


# Checks of what the stack says of its data against the file that is there.

#: Most columns that a message names.
_SHOWN: Final = 12


def check_batches(settings: LocalSettings, root: Path) -> list[Finding]:
    """Inputs of predictions that are not there, or can't lie plain."""
    found: list[Finding] = []
    for name, batch in settings.batches.items():
        for index, path in enumerate(batch.inputs):
            place = resolved(path, root)
            if not place.exists():
                message = (
                    f"there is no file or folder {place}; a relative path starts at the project's "
                    "folder"
                )
                found.append(Finding(("batches", name, "inputs", index), message))
        if batch.plain and settings.data_class == "restricted":
            key = ("batches", name, "plain")
            message = "given true, but predictions of restricted data are sealed"
            found.append(Finding(key, message, (Drop(key),)))
    return found


def check_combinations(settings: LocalSettings, root: Path) -> list[Finding]:
    """Keys that contradict each other, a dataset that is not there, a column it doesn't have."""
    found = [
        *_check_dataset(settings, root),
        *_check_model(settings.training, root),
        *_check_division(settings.training, is_text=settings.is_text(root)),
        *_check_word(settings, root),
        *_check_smaller(settings, root),
        *_check_begun(settings, root),
        *_check_tracking(settings.training, root),
        *_check_bodies(settings.service),
        *_check_second(settings.service),
        *_check_models(settings),
    ]
    if settings.features is not None:
        source = Path(settings.dataset_source(root)) if settings.is_table(root) else None
        found += check_features(settings.features, source, settings.target, root)
    tokens, key = settings.service.tokens_per_minute, ("service", "tokensPerMinute")
    if tokens is not None and not settings.is_text(root):
        message = (
            f"given {tokens}, but only language models have tokens, and the dataset is no text"
        )
        found.append(Finding(key, message, (Drop(key),)))
    if settings.is_text(root):
        found += _check_language(settings)
    elif settings.watch is not None:
        found += check_watch(
            settings.watch, is_table=settings.is_table(root), model=settings.model,
            made=settings.model_name, has_shadow=settings.service.shadow is not None,
        )  # fmt: skip
    return found


def _check_bodies(service: ServiceSettings) -> list[Finding]:
    most, given = int(bound("grpc", "max_body_bytes").high), service.max_body_bytes
    if not service.grpc or given <= most:
        return []
    key = ("service", "maxBodyBytes")
    message = (
        f"given {given}, but allowed is {most} at most where gRPC is answered, as it is by "
        "default; or set grpc to false"
    )
    return [Finding(key, message, (Put(key, most),))]


def _check_models(settings: LocalSettings) -> list[Finding]:
    """Further models that are none, or come from nowhere."""
    found: list[Finding] = []
    service = settings.service
    for name, each in service.models.items():
        key = ("service", "models", name)
        if name == settings.model_name:
            message = "that is the name of the stack's own model; allowed: further ones"
            found.append(Finding(key, message, (Drop(key),), at_key=True))
        if name in MODELS_TAKEN:
            message = f"that is a path of the server's own; allowed: other names than {name}"
            found.append(Finding(key, message, at_key=True))
        ways = [each.stack is not None, each.registry is not None, each.keyring is not None]
        if ways not in ([True, False, False], [False, True, True]):
            message = "allowed: stack, or registry and keyring; one of both ways says where it is"
            found.append(Finding(key, message))
        if (given := each.max_body_bytes) is not None and given > service.max_body_bytes:
            message = (
                f"given {given}; allowed: {service.max_body_bytes} at most, as service."
                "maxBodyBytes is: the server reads no larger request"
            )
            found.append(Finding((*key, "maxBodyBytes"), message))
    return found


def _check_second(service: ServiceSettings) -> list[Finding]:
    if service.shadow is None or service.experiment is None:
        return []
    message = (
        "given beside service.shadow, but a server has one version beside the one that serves"
    )
    paths = (("service", "experiment"), ("service", "shadow"))
    return [Finding(paths[0], message, tuple(Drop(each) for each in paths))]


def _check_dataset(settings: LocalSettings, root: Path) -> list[Finding]:
    if settings.dataset == DIGITS:
        return _without_target(settings, f"the dataset {DIGITS}")
    source = Path(settings.dataset_source(root))
    if is_folder(source):
        return _check_folder(settings, source, root)
    if not (settings.is_table(root) or settings.is_text(root)):
        message = (
            f"given {format_value(settings.dataset)}; allowed: {DIGITS}, or the path of a "
            f"{' or '.join((*TABLES, *TEXTS))} file or of a folder of pictures, of texts or of "
            "shards"
        )
        return [Finding(("dataset",), message, _other_files(settings, root))]
    if not is_file(source):
        message = f"there is no file {source}; a relative path starts at the project's folder"
        return [Finding(("dataset",), message, _other_files(settings, root))]
    if settings.is_text(root):
        return _without_target(settings, "a text", is_text=True)
    found = _check_table(settings, source)
    if settings.task == LANGUAGE:
        message = (
            f"given {LANGUAGE}, and {settings.dataset} is a table; texts are in a "
            f"{' or '.join(TEXTS)} file, in a folder of such, or in a column of shards in a folder"
        )
        found.append(Finding(("task",), message, (Drop(("task",)),)))
    return found


def _check_folder(settings: LocalSettings, folder: Path, root: Path) -> list[Finding]:
    if _holds_shards(folder):
        return _check_shards(settings, folder, root)
    if settings.is_text(root):
        return _without_target(settings, "a folder of texts", is_text=True)
    return _check_pictures(settings, folder, root)


def _check_language(settings: LocalSettings) -> list[Finding]:
    """Keys that a language model has no use for, and sizes that it can't have."""
    training = settings.training
    division = training.division
    width = DECODER_WIDTH if training.width is None else training.width
    found: list[Finding] = []
    misfits = training.decoder.misfits(width, division.tensor, division.pipeline)
    # How large one is that is begun with, the trainer reads.
    for each in misfits if training.start is None else ():
        above = ("training", "parallel") if each.name in OF_LAYERS else ("training",)
        path = (*above, camel(each.name))
        message = f"given {each.given}; allowed: {each.allowed}"
        found.append(Finding(path, message, (Put(path, each.near),)))
    for path, is_given, reason in (
        (("batches",), bool(settings.batches), "there are no rows of a file to predict"),
        (("watch",), settings.watch is not None, "no drift is told that could be acted on"),
        (
            ("service", "shadow"), settings.service.shadow is not None,
            "texts of two versions aren't compared",
        ),
        (
            ("service", "experiment"), settings.service.experiment is not None,
            "its requests aren't given to versions",
        ),
    ):  # fmt: skip
        if is_given:
            message = f"given, but of a text a language model is learned, and {reason}"
            found.append(Finding(path, message, (Drop(path),)))
    if settings.training.model is not None and settings.training.model not in MODEL.words:
        path = ("training", "model")
        message = (
            f"given {format_value(settings.training.model)}, but models of one's own learn from "
            "images and tables, and the dataset is a text"
        )
        found.append(Finding(path, message, (Drop(path), Drop(("training", "code")))))
    return found


def _check_table(settings: LocalSettings, source: Path) -> list[Finding]:
    try:
        columns = read_header(source)
    except (WorkloadError, OSError) as error:
        return [Finding(("dataset",), f"its columns can't be read: {error}")]
    named = [column for column in columns if column]
    if settings.target is not None and settings.target in named:
        return []
    return [_target(settings, named)]


def _holds_shards(folder: Path) -> bool:
    try:
        return shard_folder.holds_shards(folder)
    except OSError:  # what can't be read is told as a folder of pictures
        return False


def _holds_texts(folder: Path) -> bool:
    try:
        return text_folder.holds_texts(folder)
    except OSError:  # likewise
        return False


def _check_shards(settings: LocalSettings, folder: Path, root: Path) -> list[Finding]:
    try:
        first = shard_folder.find(folder)[0]
    except WorkloadError as error:
        return [Finding(("dataset",), str(error), _other_files(settings, root))]
    if first.suffix.lower() in TABLES:
        return _check_table(settings, first)
    is_pictured = first.suffix.lower() == shard_folder.PICTURED and settings.task != LANGUAGE
    if settings.target is None and not is_pictured:
        message = f"missing; the shards of {settings.dataset} need the column to predict"
        return [Finding(("target",), message)]
    return []


def _check_model(training: TrainingSettings, root: Path) -> list[Finding]:
    """A model of one's own whose folder, module or class isn't there, or that can't be one."""
    above = ("training",)
    is_left_out = training.model is None and training.code is None and not training.options
    if is_left_out or training.model in MODEL.words:
        return []
    if training.code is None or training.model is None:
        missing = "code" if training.code is None else "model"
        message = (
            "missing; a model of your own needs its class (training.model) and the folder of its "
            "code (training.code)"
        )
        return [Finding((*above, missing), message)]
    found: list[Finding] = []
    if training.width is not None:
        message = (
            f"given {training.width}, but it is of Falaj's own models; leave it out, or have "
            f"{training.model} take it as one of training.options"
        )
        found.append(Finding((*above, "width"), message, (Drop((*above, "width")),)))
    try:
        check_options(training.options)
    except WorkloadError as error:
        found.append(Finding((*above, "options"), str(error)))
    place = resolved(training.code, root)
    try:
        is_there = is_folder(place)
    except OSError as error:
        return [*found, Finding((*above, "code"), f"{place}: {error.strerror}")]
    if not is_there:
        message = f"there is no folder {place}; a relative path starts at the project's folder"
        return [*found, Finding((*above, "code"), message)]
    try:
        code = read_folder(place)
    except (WorkloadError, OSError) as error:
        return [*found, Finding((*above, "code"), str(error))]
    try:
        find(code, training.model)
    except WorkloadError as error:
        found.append(Finding((*above, "model"), str(error)))
    return found


def _check_division(training: TrainingSettings, *, is_text: bool) -> list[Finding]:
    """Numbers of processes that don't go together, and a division that the model can't have."""
    found: list[Finding] = []
    division, processes, data = training.division, training.all_processes, training.parallel.data
    above = ("training", "parallel")
    if not PROCESSES.allows(processes):
        message = (
            f"given data {data or 1} x {division}, for {processes} processes in all; allowed: "
            f"{PROCESSES.description}"
        )
        found.append(Finding(above, message, (Drop(above),)))
    elif (reason := division.refuse_processes(processes, data)) is not None:
        found.append(Finding(above, reason, (Drop(("training", "processes")),)))
    if (reason := division.refuse_compression(training.compression, processes)) is not None:
        path = ("training", "compression")
        found.append(Finding(path, reason, (Drop(path),)))
    if (reason := division.refuse_compile(training.compile)) is not None:
        path = ("training", "compile")
        found.append(Finding(path, reason, (Drop(path),)))
    if training.tune and division.processes > 1:
        path = ("training", "tune")
        reason = "given true, but the model is divided (training.parallel); leave one of both out"
        found.append(Finding(path, reason, (Drop(path),)))
    return found if is_text else [*found, *_without_layers(training)]


def _check_smaller(settings: LocalSettings, root: Path) -> list[Finding]:
    """What makes networks smaller, where there is none of Falaj's that each process has whole."""
    training, found = settings.training, list[Finding]()

    def refuse(key: str, given: object, why: str) -> None:
        path = ("training", key)
        found.append(Finding(path, f"given {format_value(given)}, {why}", (Drop(path),)))

    for key, given in (
        ("distilTemperature", training.distil_temperature),
        ("distilWeight", training.distil_weight),
    ):
        if given is not None and training.teacher is None:
            refuse(key, given, "but there is no teacher (training.teacher)")
    for key, given in (
        ("teacher", training.teacher),
        ("prune", training.prune),
        ("quantisationAware", training.quantisation_aware),
    ):
        if not given:
            continue
        if training.code is not None:
            refuse(key, given, "but it is of Falaj's own networks, and the model is your own")
        elif training.division.processes > 1:
            refuse(key, given, "but the model is divided (training.parallel); leave one out")
        elif key != "teacher" and settings.is_text(root):
            refuse(key, given, "but it is of images and tables, and the dataset is a text")
    if training.teacher is not None and not found:
        place = resolved(training.teacher, root)
        if not is_file(place / "record.json"):
            refuse("teacher", training.teacher, f"but there is no finished run in {place}")
    return found


def _check_begun(settings: LocalSettings, root: Path) -> list[Finding]:
    """Weights that aren't there, and low ranks that there is nothing to add to."""
    training, found = settings.training, list[Finding]()

    def refuse(key: str, given: object, why: str) -> None:
        path = ("training", key)
        found.append(Finding(path, f"given {format_value(given)}, but {why}", (Drop(path),)))

    rank = training.lora_rank
    for key, given, is_given in (
        ("loraAlpha", training.lora_alpha, training.lora_alpha is not None),
        ("loraMatrices", training.lora_matrices, training.lora_matrices != LORA_MATRICES.default),
    ):
        if is_given and rank is None:
            refuse(key, given, "no low ranks are learned (training.loraRank)")
    if rank is not None and training.start is None:
        refuse("loraRank", rank, "there are no weights to add to (training.start)")
    elif rank is not None and not settings.is_text(root):
        refuse("loraRank", rank, "it is of a language model, and the dataset is no text")
    elif rank is not None and training.division.processes > 1:
        refuse("loraRank", rank, "the model is divided (training.parallel); leave one out")
    if training.start is not None and training.vocabulary is not None and settings.is_text(root):
        refuse(
            "vocabulary", training.vocabulary,
            "the model that is begun with brings its own (training.start)",
        )  # fmt: skip
    if training.start is not None:
        place = resolved(training.start, root)
        if not any(is_file(place / name) for name in ("record.json", "config.json")):
            refuse(
                "start", training.start,
                f"there is neither a finished run nor a model in Llama's form in {place}",
            )  # fmt: skip
    return found


def _check_tracking(training: TrainingSettings, root: Path) -> list[Finding]:
    """A tracking server abroad, files for it that aren't there, and a file that can't be one."""
    given, above = training.tracking, ("training", "tracking")
    if given is None:
        return []
    if given.server is None:
        return _check_tracking_file(given, above, root)
    server = (*above, "server")
    if given.file is not None:
        return [
            Finding(
                (*above, "file"),
                "given beside server: a run is kept in a file or by a server; leave one of them "
                "out",
                (Drop((*above, "file")),),
            )
        ]
    try:
        parts = urlsplit(given.server)
        host, _ = parts.hostname or "", parts.port
    except ValueError as error:
        return [Finding(server, f"given {format_value(given.server)}: {error}")]
    found = [
        Finding((*above, key), f"there is no file {resolved(path, root)}")
        for key, path in (("secretFile", given.secret_file), ("authority", given.authority))
        if path is not None and not is_file(resolved(path, root))
    ]
    if (reason := refused_host(host, given.allowed_hosts)) is not None:
        found.append(Finding(server, reason, (Drop(above),)))
    return found


def _check_tracking_file(
    given: TrackingSettings, above: tuple[str, ...], root: Path
) -> list[Finding]:
    """What is of a server without one, and a file where none can be."""
    found = [
        Finding((*above, key), "is of a server; name that as well, or leave it out")
        for key, value in (
            ("secretFile", given.secret_file),
            ("authority", given.authority),
            ("allowedHosts", given.allowed_hosts),
        )
        if value
    ]
    if given.file is not None:
        path = resolved(given.file, root)
        if is_folder(path) or not is_folder(path.parent):
            found.append(
                Finding(
                    (*above, "file"),
                    f"given {path}; allowed: a file in a folder that is there; it is made where "
                    "it isn't",
                )
            )
    return found


def tracking_args(settings: TrackingSettings | None, root: Path) -> TrackingArgs:
    """Where the run is sent, as the component takes it; its host was judged with the settings."""
    if settings is None:
        return {}
    if settings.file is not None or settings.server is None:
        return {
            "tracking": None,  # in the place of the section of that name
            "tracking_file": str(resolved(settings.file or _TRACKING_FILE, root)),
            "tracking_experiment": settings.experiment,
        }
    # The packs take a while to load, and few stacks have a server.
    from falaj.policies.reading.hosts import is_private  # noqa: PLC0415

    host = urlsplit(settings.server).hostname or ""
    judged = [] if is_private(host) else [host]
    secret, authority = settings.secret_file, settings.authority
    return {
        "tracking": settings.server,
        "tracking_experiment": settings.experiment,
        "tracking_secret": str(resolved(secret, root)) if secret is not None else None,
        "tracking_authority": str(resolved(authority, root)) if authority is not None else None,
        "tracking_allow": list(dict.fromkeys([*settings.allowed_hosts, *judged])),
    }


def _without_layers(training: TrainingSettings) -> list[Finding]:
    """What only the layers of a language model can have."""
    found: list[Finding] = []
    why = "which is of a language model's {}, and the dataset is no text"
    layers = why.format("layers")
    for part in OF_LAYERS:
        number = getattr(training.division, part)
        if number > 1:
            path = ("training", "parallel", part)
            message = f"given {number}, {layers}; allowed: 1; parallel.shard divides any network"
            found.append(Finding(path, message, (Drop(path),)))
    for name in (*DECODER, "context", "vocabulary"):
        size = getattr(training, name)
        if size is not None:
            path = ("training", camel(name))
            of = layers if name in DECODER else why.format("tokens")
            found.append(Finding(path, f"given {size}, {of}; leave it out", (Drop(path),)))
    if training.recompute != RECOMPUTE.default:
        path = ("training", "recompute")
        message = f"given {training.recompute!r}, {layers}; allowed: {RECOMPUTE.default}"
        found.append(Finding(path, message, (Drop(path),)))
    return found


def _check_word(settings: LocalSettings, root: Path) -> list[Finding]:
    """What a model of Falaj's own has no use for, and networks of images where there are none."""
    training, above = settings.training, ("training",)
    if training.model not in MODEL.words:
        return []
    found = [
        Finding(
            (*above, key),
            f"given, but it is of a model of your own, and {training.model} is Falaj's; leave it "
            "out, or name your class (training.model)",
            (Drop((*above, key)),),
        )
        for key, value in (("code", training.code), ("options", training.options))
        if value
    ]
    kind = "text" if settings.is_text(root) else "table" if settings.is_table(root) else ""
    if kind and training.model in IMAGE_NETWORKS:
        message = (
            f"given {format_value(training.model)}, which learns from images, and the dataset is "
            f"a {kind}"
        )
        found.append(Finding((*above, "model"), message, (Drop((*above, "model")),)))
    return found


def _check_pictures(settings: LocalSettings, folder: Path, root: Path) -> list[Finding]:
    found = _without_target(settings, "a folder of pictures")
    try:
        picture_folder.classes(folder)
    except WorkloadError as error:
        found.append(Finding(("dataset",), str(error), _other_files(settings, root)))
    return found


def _without_target(settings: LocalSettings, what: str, *, is_text: bool = False) -> list[Finding]:
    """Keys that only tables have."""
    of = "what a language model learns from" if is_text else "a classification"
    allowed = (TASK.default, LANGUAGE if is_text else "classification")
    found: list[Finding] = []
    if settings.target is not None:
        message = f"given {format_value(settings.target)}, but {what} has a target of its own"
        found.append(Finding(("target",), message, (Drop(("target",)),)))
    if settings.task not in allowed:
        message = f"given {format_value(settings.task)}, but {what} is {of}"
        found.append(Finding(("task",), message, (Drop(("task",)),)))
    return found


def _target(settings: LocalSettings, columns: list[str]) -> Finding:
    """A column to predict that is missing, or isn't in the table."""
    listed = ", ".join(columns[:_SHOWN]) + (" …" if len(columns) > _SHOWN else "")
    has = f"{settings.dataset} has the columns {listed}"
    given = settings.target
    if given is None:
        message = f"missing; the dataset {settings.dataset} needs the column to predict; {has}"
        return Finding(("target",), message, (Put(("target",), columns[-1]),))
    folded = {column.casefold(): column for column in reversed(columns)}
    near = nearest(given.strip().casefold(), folded)
    hint = f"; did you mean {folded[near[0]]}?" if near else ""
    meant = folded[near[0]] if near else columns[-1]
    return Finding(
        ("target",), f"given {format_value(given)}, but {has}{hint}", (Put(("target",), meant),)
    )


def _other_files(settings: LocalSettings, root: Path) -> tuple[Action, ...]:
    """The file that was meant, else the data that need none."""
    near = similar_files(settings.dataset, root, (*TABLES, *TEXTS))
    if near:
        return (Put(("dataset",), near[0]),)
    return (Put(("dataset",), DIGITS),)


CHECKS: Final = (check_combinations, check_batches)
