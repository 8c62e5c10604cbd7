"""A training run, named by the digests of dataset and code, and the hyperparameters."""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class TrainingRunArgs(TypedDict):
    """Arguments of `TrainingRun`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    dataset: pulumi.Input[str]
    """Folder of the snapshot (``Dataset.path``)."""
    dataset_digest: pulumi.Input[str]
    """Digest of the dataset (``Dataset.digest``)."""
    keyring: NotRequired[pulumi.Input[str]]
    """Folder of the key ring (``KeyRing.path``) that seals model and checkpoints. Default: they
    lie unencrypted."""
    epochs: NotRequired[pulumi.Input[int] | None]
    """Most passes over the rows. Default: by the model's family and the number of rows."""
    batch_size: NotRequired[pulumi.Input[int] | None]
    """Rows of a step, over all processes. Default: by the family."""
    learning_rate: NotRequired[pulumi.Input[float] | None]
    """Peak learning rate. Default: by the family."""
    weight_decay: NotRequired[pulumi.Input[float] | None]
    """Weight decay. Default: by the family."""
    patience: NotRequired[pulumi.Input[int] | None]
    """Epochs without gain before it stops early. Default: 20."""
    gradient_clip: NotRequired[pulumi.Input[float] | None]
    """Largest norm of the gradients; 0 doesn't clip. Default: 1."""
    width: NotRequired[pulumi.Input[int] | None]
    """Channels, hidden units, or numbers between a language model's layers. Default: by the
    family."""
    layers: NotRequired[pulumi.Input[int] | None]
    """Layers of a language model; of texts alone, as the next two. Default: 4."""
    heads: NotRequired[pulumi.Input[int] | None]
    """Heads of each of its layers. Default: 4."""
    key_value_heads: NotRequired[pulumi.Input[int] | None]
    """Heads of keys and values, each of which serves as many of the others. Default: 2."""
    seed: NotRequired[pulumi.Input[int] | None]
    """Seed of everything random. Default: 0."""
    processes: NotRequired[pulumi.Input[int] | None]
    """All processes that train. Default: 1."""
    shard: NotRequired[pulumi.Input[int] | None]
    """Processes that divide weights, gradients and the optimiser's numbers among them (FSDP); with
    ``tensor`` and ``pipeline`` multiplied it divides ``processes``. Default: 1. A change of it
    trains nothing again, as results differ by rounding alone; so with the next three."""
    tensor: NotRequired[pulumi.Input[int] | None]
    """Processes that divide each layer of a language model. Default: 1."""
    pipeline: NotRequired[pulumi.Input[int] | None]
    """Processes that divide the layers of a language model. Default: 1."""
    recompute: NotRequired[pulumi.Input[str] | None]
    """``layers`` computes what is in a layer of a language model again going back, which saves
    memory and costs time; ``none`` keeps all. Default: ``none``."""
    compression: NotRequired[pulumi.Input[str] | None]
    """What gradients travel as between processes that each have the whole model: ``none``
    (float32), ``float16``, ``bfloat16`` or ``powersgd``. Default: ``none``. Another one is another
    training."""
    precision: NotRequired[pulumi.Input[str] | None]
    """``auto``, ``float32``, ``bfloat16`` or ``float16``. Default: ``auto``, by the hardware."""
    threads: NotRequired[pulumi.Input[int] | None]
    """CPU threads of each process. Default: its share of the cores."""
    model: NotRequired[pulumi.Input[str] | None]
    """``auto`` (of a table, a network or gradient-boosted trees, whichever is better),
    ``network`` (that alone), ``mobilenet`` or ``efficientnet`` (light networks of images), or a
    class of your own, a ``torch.nn.Module`` in ``code``, as ``mine.network:Network``. Default:
    ``auto``."""
    code: NotRequired[pulumi.Input[str] | None]
    """Folder of that class's code, of which the Python files travel with the run; other code is
    another run. Needed with a class."""
    options: NotRequired[pulumi.Input[Mapping[str, Any]] | None]
    """What that class is made with beside the data's shape: numbers, texts, true or false, and
    lists of these, by name. Default: none."""
    teacher: NotRequired[pulumi.Input[str] | None]
    """Folder of a finished run on the same dataset, whose answers are learned as well (knowledge
    distillation), as a smaller network may do. Sealed by the same key ring. Default: there is
    none. Of a table, ``auto`` is the network then, as with the next four."""
    distil_temperature: NotRequired[pulumi.Input[float] | None]
    """What the logits of both are divided by, so that a teacher's smaller probabilities count;
    not of a regression. Default: 2."""
    distil_weight: NotRequired[pulumi.Input[float] | None]
    """The share of the loss that is of the teacher's answers, 0 to 1. Default: 0.7."""
    prune: NotRequired[pulumi.Input[float] | None]
    """Share of each layer's hidden units or channels that is taken out while it learns, the least
    important ones; never more, and in eights where there are eights. Not of texts. Default: 0."""
    quantisation_aware: NotRequired[pulumi.Input[bool] | None]
    """Learn the last three tenths of the epochs with the roundings of 8 bits, whose ranges go into
    the export. Not of texts. Default: false."""
    start: NotRequired[pulumi.Input[str] | None]
    """Folder of a finished run, sealed by the same key ring, or of a model in Llama's form, whose
    weights it begins with; how large the model is follows from them. A text has to be cut with
    that model's vocabulary (``Dataset.vocabulary_of``). Default: weights are drawn."""
    lora_rank: NotRequired[pulumi.Input[int] | None]
    """Of a text, with ``start``: learn only what of this rank is added to the matrices (LoRA).
    Default: all weights are learned."""
    lora_alpha: NotRequired[pulumi.Input[float] | None]
    """What is added is multiplied by this, divided by the rank. Default: twice the rank."""
    lora_matrices: NotRequired[pulumi.Input[str] | None]
    """Of each layer, that it is added to: ``attention``, ``units`` or ``all``. Default:
    ``all``."""
    checkpoint_every: NotRequired[pulumi.Input[int] | None]
    """Epochs between checkpoints. Default: 1. A change of it trains nothing again."""
    retain: NotRequired[pulumi.Input[bool]]
    """Keep it when it is replaced or destroyed; a later one with the same content adopts it.
    Default: it is removed."""


class TrainingRun(LocalComponent):
    """A training run, named by the digest of the dataset and the hyperparameters."""

    path: pulumi.Output[str]
    """Folder of the run."""
    digest: pulumi.Output[str]
    """Digest that names the run."""
    metric_name: pulumi.Output[str]
    """``accuracy`` (0 to 1); ``rmse`` for regression; ``nats_per_character`` for a text."""
    score: pulumi.Output[float]
    """The metric on held-out rows."""
    epochs_run: pulumi.Output[int]
    """Epochs that were run."""
    seconds: pulumi.Output[float]
    """How long it trained, in seconds."""

    def __init__(
        self, name: str, args: TrainingRunArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        outputs = (
            "path",
            "digest",
            "metric_name",
            "score",
            "epochs_run",
            "seconds",
        )
        given: dict[str, Any] = {**args}
        super().__init__("TrainingRun", name, given, outputs, opts)
        self.path = self._output("path")
        self.digest = self._output("digest")
        self.metric_name = self._output("metric_name")
        self.score = self._output("score")
        self.epochs_run = self._output("epochs_run")
        self.seconds = self._output("seconds")
        self.register_outputs(
            {
                "path": self.path,
                "digest": self.digest,
                "metric_name": self.metric_name,
                "score": self.score,
                "epochs_run": self.epochs_run,
                "seconds": self.seconds,
            }
        )
