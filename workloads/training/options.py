"""The parameters of a training run: defaults by family and size, checks, identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from falaj.workloads.bounds import CHOICES, DECODER, IMAGE_NETWORKS, TRAINING
from falaj.workloads.errors import WorkloadError
from falaj.workloads.processor import cores
from falaj.workloads.training import language
from falaj.workloads.training.decoder_size import DECODER_WIDTH, DEFAULT_SIZE, DecoderSize
from falaj.workloads.training.own_code import OwnModel, check_name, check_options
from falaj.workloads.training.snapshot import digest

_CHOICES = CHOICES["training"]
_WITHOUT_EFFECT = {
    "processes", "threads", "device", "accumulation", "checkpoint_every", "checkpoint_steps",
    "shard", "tensor", "pipeline", "recompute", "compile", "read_ahead",
}  # fmt: skip

DISTILLATION = {name: TRAINING[name].usual for name in ("distil_temperature", "distil_weight")}
"""What holds of a teacher where nothing else is said."""
LOW_RANK = {"lora_rank", "lora_alpha", "lora_matrices"}
ALPHA_OF_A_RANK = 2
"""What holds of alpha where nothing else is said, times the rank: what is added counts twice."""
LOW_RANK_RATE = 1e-2
"""Peak learning rate of low ranks, where nothing else is said. On 100,000 characters of a program
it came to 0.942 nats, and a text's usual rate to 0.981."""
_ONE_THREAD_ROWS = 64
_MANY_PICTURES, _FEW_LIGHT_EPOCHS = 1_000, 30
_TEXT_STEPS, _TEXT_BATCH, _MOST_TEXT_EPOCHS = 3_000, 8, 60


@dataclass(frozen=True)
class Requested:
    """What a person asked for; None leaves the choice to the family's default."""

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    weight_decay: float | None = None
    patience: int | None = None
    gradient_clip: float | None = None
    label_smoothing: float | None = None
    accumulation: int | None = None
    seed: int = int(TRAINING["seed"].usual)
    processes: int = int(TRAINING["processes"].usual)
    precision: str = _CHOICES["precision"].default
    device: str = _CHOICES["device"].default
    class_weights: str = _CHOICES["class_weights"].default
    model: str = _CHOICES["model"].default
    width: int | None = None
    layers: int | None = None
    heads: int | None = None
    key_value_heads: int | None = None
    checkpoint_every: int = int(TRAINING["checkpoint_every"].usual)
    checkpoint_steps: int | None = None
    threads: int | None = None
    read_ahead: int | None = None
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1
    recompute: str = _CHOICES["recompute"].default
    compile: str = _CHOICES["compile"].default
    compression: str = _CHOICES["compression"].default
    code: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    teacher: Path | None = None
    distil_temperature: float | None = None
    distil_weight: float | None = None
    prune: float = TRAINING["prune"].usual
    quantisation_aware: bool = False
    start: Path | None = None
    lora_rank: int | None = None
    lora_alpha: float | None = None
    lora_matrices: str = _CHOICES["lora_matrices"].default


@dataclass(frozen=True)
class Parameters:
    """The resolved parameters of a run; together with the dataset they fix its outcome.

    Attributes:
        epochs: the most passes over the training rows, and the length of the schedule.
        batch_size: rows of one optimiser step, over all processes together.
        learning_rate: the peak, reached after the warm-up, from where it falls as a cosine.
        weight_decay: AdamW's, on weight matrices only.
        patience: epochs without a lower validation loss before training stops early.
        gradient_clip: the largest gradient norm; 0 means unlimited.
        label_smoothing: the share of each row's target that is spread over all classes.
        accumulation: parts that a batch is computed in one after the other, to save memory.
        seed: fixes the weights' start, the order of the rows and the augmentation.
        processes: how many processes share each batch.
        precision: ``float32``, ``bfloat16`` or ``float16``.
        device: ``cpu`` or ``cuda``.
        class_weights: ``balanced`` makes every class count the same, ``tempered`` goes half way
            (square roots), ``none`` counts rows.
        model: ``auto``, ``network``, a light network of images, or ``package.module:Class`` of a
            team's own code.
        width: the channels of the first convolution, the units of a hidden layer, or the numbers
            between a decoder's layers.
        layers: of a decoder; 0: the model is another.
        heads: of a decoder's layer; 0 likewise.
        key_value_heads: of keys and values in a decoder's layer; 0 likewise.
        checkpoint_every: epochs between checkpoints.
        checkpoint_steps: steps between checkpoints within an epoch; 0: there are none within it.
        threads: CPU threads of each process.
        read_ahead: batches of a streamed dataset that wait at most; 0: by their rows.
        shard: processes that each hold a part of weights, gradients and the optimiser's numbers.
        tensor: processes that each hold a part of every layer's matrices.
        pipeline: processes that each hold a part of the layers.
        recompute: ``layers`` keeps of a forward pass what goes into layers alone, ``none`` all.
        compile: ``auto``, ``always`` or ``never``, as was asked for (`compiling.choose`).
        compression: what gradients travel as: ``none`` (float32), ``float16``, ``bfloat16`` or
            ``powersgd`` (two thin matrices for each of the gradient's).
        code: digest of a team's own code; empty: the model is one of ours.
        options: what a team's own model is made with.
        teacher: digest of the model whose answers are learned; empty: there is none.
        distil_temperature: by which the logits of both are divided, of classes and characters.
        distil_weight: the share of the loss that is of the teacher's answers.
        prune: the share of hidden units, or of channels, that is taken out at most.
        quantisation_aware: whether the last epochs are learned with the roundings of 8 bits.
        start: digest of the weights that it begins with; empty: they are drawn.
        lora_rank: of what alone is learned and added to them; 0: all of them are learned.
        lora_alpha: which divided by the rank multiplies what is added.
        lora_matrices: of a decoder's layers, to which it is added: ``attention``, ``units`` or
            ``all``.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    patience: int
    gradient_clip: float
    label_smoothing: float
    accumulation: int
    seed: int
    processes: int
    precision: str
    device: str
    class_weights: str
    model: str
    width: int
    checkpoint_every: int
    threads: int
    checkpoint_steps: int = 0
    read_ahead: int = 0
    layers: int = 0
    heads: int = 0
    key_value_heads: int = 0
    shard: int = 1
    tensor: int = 1
    pipeline: int = 1
    recompute: str = _CHOICES["recompute"].default
    compile: str = _CHOICES["compile"].default
    compression: str = _CHOICES["compression"].default
    code: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    teacher: str = ""
    distil_temperature: float = DISTILLATION["distil_temperature"]
    distil_weight: float = DISTILLATION["distil_weight"]
    prune: float = TRAINING["prune"].usual
    quantisation_aware: bool = False
    start: str = ""
    lora_rank: int = 0
    lora_alpha: float = 0.0
    lora_matrices: str = _CHOICES["lora_matrices"].default

    @property
    def own(self) -> OwnModel | None:
        """The team's own model; None: it is one of ours."""
        return OwnModel(self.model, self.options, self.code) if self.code else None

    @property
    def decoder(self) -> DecoderSize:
        """The size of a text's decoder; of another model that of the defaults, without effect."""
        if not self.layers:
            return DEFAULT_SIZE
        return DecoderSize(self.layers, self.heads, self.key_value_heads)

    @property
    def light_network(self) -> str:
        """The name of a light network of images; empty: it is another model."""
        return self.model if self.model in IMAGE_NETWORKS else ""

    @property
    def may_normalise(self) -> bool:
        """Whether what a batch is like may be learned: then no batch is to be of a single row.

        Such models are also asked about no more rows at once than they learn from.
        """
        return bool(self.code or self.light_network)

    def to_json(self) -> dict[str, Any]:
        """Return the parameters by name, without those that this model doesn't have."""
        without = {"width"} if self.code else {"code", "options"}
        if not self.layers:
            without = without | DECODER.keys()
        if not self.teacher:
            without |= {"teacher", *DISTILLATION}
        if not self.lora_rank:
            without |= LOW_RANK
        unused = ("prune", "quantisation_aware", "start", "checkpoint_steps", "read_ahead")
        without |= {name for name in unused if not getattr(self, name)}
        return {name: value for name, value in asdict(self).items() if name not in without}

    def identity(self, dataset_digest: str) -> str:
        """Return the digest that tells this run from runs with other data or parameters.

        On how many processes, threads and devices it is computed changes rounding only, and how
        often checkpoints are written nothing: they don't count, so that a run can be resumed on
        another machine.
        """
        values = {k: v for k, v in self.to_json().items() if k not in _WITHOUT_EFFECT}
        if self.compression == _CHOICES["compression"].default:
            del values["compression"]  # runs had their names before there was a choice
        if self.decoder == DEFAULT_SIZE:
            values = {k: v for k, v in values.items() if k not in DECODER}
        return digest({"dataset": dataset_digest, "parameters": values})


def check(requested: Requested) -> None:
    """Refuse values out of range.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    for each in fields(requested):
        value = getattr(requested, each.name)
        bound = TRAINING.get(each.name)
        if value is not None and bound is not None:
            bound.check("--" + each.name.replace("_", "-"), value)
    for name, choice in _CHOICES.items():
        if name != "model":
            choice.check("--" + name.replace("_", "-"), getattr(requested, name))
    _check_model(requested)


def _check_model(requested: Requested) -> None:
    """Refuse a model of a team's own without its code, and the other way round."""
    if requested.code is not None:
        check_name(requested.model)
        check_options(requested.options)
        if requested.width is not None:
            raise WorkloadError(
                f"--width {requested.width} is of Falaj's own models: leave it out, or have "
                f"{requested.model} take it as an option of its own (--option)"
            )
        return
    if ":" in requested.model:
        raise WorkloadError(
            f"--model {requested.model} is a class of your own: name the folder that its code is "
            "in (--code)"
        )
    _CHOICES["model"].check("--model", requested.model)
    if requested.options:
        raise WorkloadError(
            f"--option {next(iter(requested.options))} is of a model of your own: name that as "
            "well (--model, --code), or leave it out"
        )


def check_decoder(parameters: Parameters) -> None:
    """Refuse a language model whose numbers don't go together.

    Raises:
        WorkloadError: names the option, what was given and what is allowed.
    """
    size = parameters.decoder
    for each in size.misfits(parameters.width, parameters.tensor, parameters.pipeline):
        option = "--" + each.name.replace("_", "-")
        raise WorkloadError(f"{option} is {each.given}: allowed is {each.allowed}")


def default_threads(processes: int, batch_size: int) -> int:
    """Return the CPU threads of each of ``processes``: their share of the cores, at most 4.

    Batches of up to 64 rows get one: their steps are too short to be shared (the digits train
    in 4.1 s on one thread and in 5.3 s on two).
    """
    if batch_size <= _ONE_THREAD_ROWS:
        return 1
    return max(1, min(4, cores() // processes))


def family_defaults(
    family: str, rows: int, *, own: bool = False, model: str = "auto"
) -> dict[str, int | float]:
    """Return the defaults for ``family`` and ``rows`` training rows.

    The labels of a team's ``own`` model aren't smoothed, as it isn't known to want that. A light
    ``model`` of images gets fewer epochs of many pictures, each of which takes longer, and isn't
    stopped early: until some forty steps are done, the average of its weights is no better than
    guessing, which of few pictures is as many epochs.

    Small tables are held back by a strong weight decay. Large ones take larger batches and fewer
    passes: the number of steps is what counts. Their labels aren't smoothed: that would draw the
    probabilities of a rare class away from its share.
    """
    values: dict[str, int | float] = {
        "patience": 20, "gradient_clip": TRAINING["gradient_clip"].usual, "accumulation": 1,
        "label_smoothing": 0.0,
    }  # fmt: skip
    if family == language.FAMILY:
        # About as many steps whatever the text's length.
        passes = round(_TEXT_STEPS * _TEXT_BATCH / rows)
        return values | {
            "epochs": min(max(passes, 1), _MOST_TEXT_EPOCHS), "batch_size": _TEXT_BATCH,
            "learning_rate": 3e-3, "weight_decay": 0.1, "patience": 3,
            "width": DECODER_WIDTH,
            **asdict(DEFAULT_SIZE),
        }  # fmt: skip
    if family == "images":
        values["label_smoothing"] = 0.0 if own else 0.1
        values |= {"epochs": 80, "batch_size": 64, "learning_rate": 4e-3, "weight_decay": 0.02}
        if model in IMAGE_NETWORKS:
            epochs = _FEW_LIGHT_EPOCHS if rows >= _MANY_PICTURES else values["epochs"]
            return values | {
                "epochs": epochs, "patience": epochs, "width": IMAGE_NETWORKS[model],
            }  # fmt: skip
        return values | {"patience": 30, "width": 16}
    values |= {"width": 64, "learning_rate": 2e-3, "weight_decay": 0.1}
    if rows >= 100_000:
        return values | {"epochs": 15, "batch_size": 1024}
    if rows >= 10_000:
        return values | {"epochs": 40, "batch_size": 256}
    return values | {
        "epochs": 100, "batch_size": 32, "learning_rate": 1e-3, "weight_decay": 1.0,
    }  # fmt: skip
