"""What `falaj.components.local.TrainingRun` takes."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, NotRequired, TypedDict

from falaj.components.local.arguments import PATH, REPLACES, KeptArgs
from falaj.components.specification.arguments import Default, Input, SameAs, Usual
from falaj.components.specification.described import described
from falaj.components.specification.limits import TextRule
from falaj.components.specification.parallel import PROCESSES, ParallelArgs, SavingArgs
from falaj.components.specification.tracking import SERVER, TrackedArgs
from falaj.components.specification.workload_bounds import bound, choice

MODEL: Final = choice("training", "model")
"""Words for models of Falaj's own; any other one is a class."""
PRECISION: Final = choice("training", "precision")
HOST_ALLOWED: Final = TextRule(
    r"^[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$",
    "a host's name without port",
    "mlflow.example.ae",
)
_GRADIENT_CLIP: Final = bound("training", "gradient_clip")
_LAYERS: Final = bound("training", "layers")
_HEADS: Final = bound("training", "heads")
_KEY_VALUE_HEADS: Final = bound("training", "key_value_heads")
_SEED: Final = bound("training", "seed")
_TEMPERATURE: Final = bound("training", "distil_temperature")
_WEIGHT: Final = bound("training", "distil_weight")
_PRUNE: Final = bound("training", "prune")
LORA_MATRICES: Final = choice("training", "lora_matrices")
_CHECKPOINT_EVERY: Final = bound("training", "checkpoint_every")


@described
class TrackingArgs(TypedDict):
    """Where the record of a run is sent."""

    tracking: NotRequired[Annotated[Input[str] | None, SERVER]]
    """Address of an MLflow tracking server that gets parameters, figures of epochs and of the
    held-out part, environment, and digests of dataset, code and model. A change of it, and of the
    next five, sends the run there and trains nothing again. Default: they are kept in the run's
    folder alone."""
    tracking_file: NotRequired[Annotated[Input[str] | None, PATH]]
    """SQLite file in MLflow's form that gets them where no server is named, for ``mlflow ui``; it
    is made where it isn't there. Default: none."""
    tracking_experiment: NotRequired[
        Annotated[Input[str] | None, SameAs(TrackedArgs, "experiment")]
    ]
    tracking_secret: NotRequired[Annotated[Input[str] | None, PATH]]
    """File of a token, or of ``user:password``, that its owner alone can read. Default: the server
    asks nobody."""
    tracking_authority: NotRequired[Annotated[Input[str] | None, PATH]]
    """PEM file of the authority that its certificate is of. Default: those that the machine
    trusts."""
    tracking_allow: NotRequired[Input[list[Annotated[str, HOST_ALLOWED]]]]
    """Hosts in the country that it may have. Default: none, as one's own networks need not be
    named."""


@described
class TrainingRunArgs(KeptArgs, TrackingArgs):
    """Arguments of `TrainingRun`."""

    dataset: Annotated[Input[str], PATH]
    """Folder of the snapshot (``Dataset.path``)."""
    dataset_digest: Annotated[Input[str], REPLACES]
    """Digest of the dataset (``Dataset.digest``)."""
    keyring: NotRequired[Annotated[Input[str], PATH]]
    """Folder of the key ring (``KeyRing.path``) that seals model and checkpoints. Default: they
    lie unencrypted."""
    epochs: NotRequired[Annotated[Input[int] | None, bound("training", "epochs"), REPLACES]]
    """Most passes over the rows. Default: by the model's family and the number of rows."""
    batch_size: NotRequired[
        Annotated[Input[int] | None, bound("training", "batch_size"), REPLACES]
    ]
    """Rows of a step, over all processes. Default: by the family."""
    learning_rate: NotRequired[
        Annotated[Input[float] | None, bound("training", "learning_rate"), REPLACES]
    ]
    """Peak learning rate. Default: by the family."""
    weight_decay: NotRequired[
        Annotated[Input[float] | None, bound("training", "weight_decay"), REPLACES]
    ]
    """Weight decay. Default: by the family."""
    patience: NotRequired[Annotated[Input[int] | None, bound("training", "patience"), REPLACES]]
    """Epochs without gain before it stops early. Default: by the family."""
    gradient_clip: NotRequired[
        Annotated[Input[float] | None, _GRADIENT_CLIP, Usual(_GRADIENT_CLIP.default), REPLACES]
    ]
    """Largest norm of the gradients; 0 doesn't clip."""
    width: NotRequired[Annotated[Input[int] | None, bound("training", "width"), REPLACES]]
    """Channels, hidden units, or numbers between a language model's layers. Default: by the
    family."""
    layers: NotRequired[Annotated[Input[int] | None, _LAYERS, Usual(_LAYERS.default), REPLACES]]
    """Layers of a language model; of texts alone, as the next two."""
    heads: NotRequired[Annotated[Input[int] | None, _HEADS, Usual(_HEADS.default), REPLACES]]
    """Heads of each of its layers."""
    key_value_heads: NotRequired[
        Annotated[Input[int] | None, _KEY_VALUE_HEADS, Usual(_KEY_VALUE_HEADS.default), REPLACES]
    ]
    """Heads of keys and values, each of which serves as many of the others."""
    seed: NotRequired[Annotated[Input[int] | None, _SEED, Usual(_SEED.default), REPLACES]]
    """Seed of everything random."""
    processes: NotRequired[
        Annotated[Input[int] | None, PROCESSES, Usual(PROCESSES.default), REPLACES]
    ]
    """All processes that train."""
    shard: NotRequired[Annotated[Input[int] | None, SameAs(ParallelArgs, "shard")]]
    """With ``tensor`` and ``pipeline`` multiplied it divides ``processes``. A change of it trains
    nothing again, as results differ by rounding alone; so with the next four."""
    tensor: NotRequired[Annotated[Input[int] | None, SameAs(ParallelArgs, "tensor")]]
    pipeline: NotRequired[Annotated[Input[int] | None, SameAs(ParallelArgs, "pipeline")]]
    recompute: NotRequired[Annotated[Input[str] | None, SameAs(SavingArgs, "recompute")]]
    compile: NotRequired[Annotated[Input[str] | None, SameAs(SavingArgs, "compile")]]
    compression: NotRequired[
        Annotated[Input[str] | None, REPLACES, SameAs(SavingArgs, "compression")]
    ]
    """Another one is another training."""
    precision: NotRequired[
        Annotated[Input[str] | None, PRECISION, Usual(PRECISION.default), REPLACES]
    ]
    """Precision of the arithmetic; ``auto`` decides by the hardware."""
    threads: NotRequired[Annotated[Input[int] | None, bound("training", "threads"), REPLACES]]
    """CPU threads of each process. Default: its share of the cores."""
    accumulation: NotRequired[Annotated[Input[int] | None, bound("training", "accumulation")]]
    """Parts that a batch is computed in one after another, which takes less memory. A change of it
    trains nothing again, as with the next two. Default: batches are whole."""
    read_ahead: NotRequired[Annotated[Input[int] | None, bound("training", "read_ahead")]]
    """Batches of a streamed dataset that wait for being learned from, at most. Default: by the
    batches' rows."""
    tune: NotRequired[Annotated[Input[bool] | None, Default(value=False)]]
    """Measure ``threads``, ``processes``, ``accumulation`` and ``read_ahead`` for a minute before
    training, those of them that aren't given (of processes: where it is 1), and take what is
    faster by more than its noise. What is learned from stays the same. What was tried and taken
    stands in the run's record; for the same data, model and machine it is measured once. Not of a
    divided model."""
    teacher: NotRequired[Annotated[Input[str] | None, PATH]]
    """Folder of a finished run on the same dataset, whose answers are learned as well (knowledge
    distillation), as a smaller network may do. Sealed by the same key ring. Default: there is
    none. Of a table, ``auto`` is the network then, as with ``prune`` and
    ``quantisation_aware``."""
    distil_temperature: NotRequired[
        Annotated[Input[float] | None, _TEMPERATURE, Usual(_TEMPERATURE.default), REPLACES]
    ]
    """What the logits of both are divided by, so that a teacher's smaller probabilities count;
    not of a regression."""
    distil_weight: NotRequired[
        Annotated[Input[float] | None, _WEIGHT, Usual(_WEIGHT.default), REPLACES]
    ]
    """The share of the loss that is of the teacher's answers."""
    prune: NotRequired[Annotated[Input[float] | None, _PRUNE, Default(_PRUNE.default), REPLACES]]
    """Share of each layer's hidden units or channels that is taken out while it learns, the least
    important ones; never more, and in eights where there are eights. Not of texts."""
    quantisation_aware: NotRequired[Annotated[Input[bool] | None, Default(value=False), REPLACES]]
    """Learn the last three tenths of the epochs with the roundings of 8 bits, whose ranges go into
    the export. Not of texts."""
    start: NotRequired[Annotated[Input[str] | None, PATH]]
    """Folder of a finished run, sealed by the same key ring, or of a model in Llama's form, whose
    weights it begins with; how large the model is follows from them. A text has to be cut with
    that model's vocabulary (``Dataset.vocabulary_of``). Default: weights are drawn."""
    lora_rank: NotRequired[Annotated[Input[int] | None, bound("training", "lora_rank"), REPLACES]]
    """Of a text, with ``start``: learn only what of this rank is added to the matrices (LoRA).
    Default: all weights are learned."""
    lora_alpha: NotRequired[
        Annotated[Input[float] | None, bound("training", "lora_alpha"), REPLACES]
    ]
    """What is added is multiplied by this, divided by the rank. Default: twice the rank."""
    lora_matrices: NotRequired[
        Annotated[Input[str] | None, LORA_MATRICES, Default(LORA_MATRICES.default), REPLACES]
    ]
    """Of each layer, what it is added to."""
    model: NotRequired[Annotated[Input[str] | None, Usual(MODEL.default), REPLACES]]
    """``auto`` (of a table, a network or gradient-boosted trees, whichever is better),
    ``network`` (that alone), ``mobilenet`` or ``efficientnet`` (light networks of images), or a
    class of your own, a ``torch.nn.Module`` in ``code``, as ``mine.network:Network``."""
    code: NotRequired[Annotated[Input[str] | None, PATH]]
    """Folder of that class's code, of which the Python files travel with the run; other code is
    another run. Needed with a class."""
    options: NotRequired[Annotated[Input[Mapping[str, Any]] | None, REPLACES]]
    """What that class is made with beside the data's shape: numbers, texts, true or false, and
    lists of these, by name. Default: none."""
    checkpoint_every: NotRequired[
        Annotated[Input[int] | None, _CHECKPOINT_EVERY, Usual(_CHECKPOINT_EVERY.default)]
    ]
    """Epochs between checkpoints. A change of it trains nothing again."""
