"""What a training begins with instead of chance: weights of an earlier run, or in Llama's form."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.chat import Template, template_of_record
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import language, linear, llama_folder, models
from falaj.workloads.training import record as records
from falaj.workloads.training.checkpoint import load_learned, numbers_digest
from falaj.workloads.training.models import Architecture, TablePreprocessing
from falaj.workloads.training.options import Requested
from falaj.workloads.training.snapshot import Dataset, digest
from falaj.workloads.vocabulary import Characters, Vocabulary


@dataclass(frozen=True)
class Start:
    """Weights that a training begins with.

    Attributes:
        place: the folder, for messages.
        architecture: what the weights are of.
        state: they, by name, on the CPU.
        classes: of what is predicted; None of a number.
        digest: the SHA-256 over the weights, the recipe of a table and the scale of its target.
        record: of the run that learned them; None: they are in Llama's form, and nothing says it.
        preprocessing: the table's recipe, which the weights are for; None of images and texts.
        target: {"mean", "scale"} of a regression's target; None of classes.
        vocabulary: the tokens of a text; None of anything else.
        template: what conversations are worded with; None: it learned none.
    """

    place: Path
    architecture: Architecture
    state: dict[str, Tensor]
    classes: list[str] | None
    digest: str
    record: dict[str, Any] | None = None
    preprocessing: TablePreprocessing | None = None
    target: dict[str, float] | None = None
    vocabulary: Vocabulary | None = None
    template: Template | None = None

    @property
    def task(self) -> str:
        """Return ``classification``, ``regression`` or ``language``."""
        return records.LANGUAGE if self.record is None else self.record["task"]

    @property
    def sizes(self) -> dict[str, int]:
        """The parameters of a run that the weights decide, by name."""
        if self.architecture.own is not None:
            return {}
        width = {"width": self.architecture.width}
        if self.architecture.family != language.FAMILY:
            return width
        return width | asdict(self.architecture.decoder)

    @property
    def model(self) -> str:
        """The parameter ``model`` of a run that goes on with these weights."""
        own = self.architecture.own
        return own.name if own is not None else self.architecture.network or "network"

    def to_json(self) -> dict[str, Any]:
        """Return what a record says of it; of weights in Llama's form no run."""
        counted = sum(each.numel() for each in self.state.values())
        description = {"digest": self.digest, "parameters": counted}
        if self.record is None:
            return description
        return {
            **description,
            "run": self.record["identity"],
            "dataset": self.record["dataset"]["digest"],
            **records.headline(self.record),
        }

    @torch.no_grad()
    def fill(self, module: nn.Module) -> None:
        """Have a fresh module begin with these weights.

        Raises:
            WorkloadError: it has others, or of other shapes.
        """
        given, wanted = self.state, module.state_dict()
        shapes = {name: tuple(each.shape) for name, each in given.items()}
        for name, each in wanted.items():
            if shapes.get(name) != tuple(each.shape):
                has = shapes.get(name, "none")
                raise WorkloadError(
                    f"--start {self.place}: this model's {name} has the shape "
                    f"{tuple(each.shape)}, and there it has {has}: begin with a run whose model "
                    "and data have the same form"
                )
        if more := sorted(given.keys() - wanted.keys()):
            raise WorkloadError(
                f"--start {self.place}: its {more[0]} isn't in this model: begin with a run of "
                "the same model"
            )
        module.load_state_dict(given)


def open_start(path: Path, keyring: KeyRing | None, dataset: Dataset) -> Start:
    """Return the weights in a folder, if a training on these rows can begin with them.

    Args:
        path: folder of a finished run, or of a model in Llama's form.
        keyring: that a run is sealed with, the same as this run's.
        dataset: that is learned from.

    Raises:
        WorkloadError: there is neither, it can't be read, or it learned something else.
    """
    try:
        start = _of_folder(path) if llama_folder.is_one(path) else _of_run(path, keyring)
    except WorkloadError as error:
        raise WorkloadError(f"--start {path}: {error}") from error
    _check_data(start, dataset)
    if dataset.template is not None and start.template is None:
        return replace(start, state=_with_marks(start.state, dataset.template))
    return start


_EMBEDDING = "embedding.weight"


def _with_marks(state: dict[str, Tensor], template: Template) -> dict[str, Tensor]:
    """Weights with fresh rows for the marks of conversations, the same each time.

    No text had them, so training drew their rows to where those of all unseen bytes are: low
    ranks, which leave that matrix as it is, could tell none of them from the others.
    """
    rows = state[_EMBEDDING].clone()
    marks = sorted(template.marks)
    random = torch.Generator().manual_seed(0)
    fresh = torch.randn(len(marks), rows.shape[1], generator=random)
    # As long as the longest: a shorter one couldn't be made likely.
    rows[marks] = functional.normalize(fresh) * (rows**2).sum(dim=1).sqrt().max()
    return {**state, _EMBEDDING: rows}


def _of_run(path: Path, keyring: KeyRing | None) -> Start:
    learned = load_learned(path, keyring)
    record = learned.record
    # It learns anew how sure to be.
    architecture, state = models.untempered(learned.architecture, learned.state)
    return Start(
        path, architecture, state, record["classes"],
        _digest(state, record["preprocessing"], record["target"]),
        record, learned.preprocessing, record["target"], learned.vocabulary,
        template_of_record(record),
    )  # fmt: skip


def _of_folder(path: Path) -> Start:
    given = llama_folder.read(path)
    return Start(
        path, given.architecture, given.state, given.vocabulary.names,
        _digest(given.state, None, None), vocabulary=given.vocabulary,
        template=given.template,
    )  # fmt: skip


def _digest(state: dict[str, Tensor], recipe: object, target: object) -> str:
    return digest({"weights": numbers_digest(state), "preprocessing": recipe, "target": target})


def vocabulary_of(path: Path, keyring: KeyRing | None) -> Vocabulary:
    """Return the vocabulary of a language model, that a text is to be cut with.

    Args:
        path: folder of its run, or of a model in Llama's form.
        keyring: that the run is sealed with. Of a run whose tokens are characters only the record
            is read, which lies open; pairs of bytes are words of its text, and sealed.

    Raises:
        WorkloadError: there is none, or it is sealed with other keys.
    """
    try:
        found = (
            llama_folder.read_vocabulary(path)
            if llama_folder.is_one(path)
            else _vocabulary_of_run(path, keyring)
        )
    except WorkloadError as error:
        raise WorkloadError(f"--vocabulary-of {path}: {error}") from error
    if found is None:
        raise WorkloadError(
            f"--vocabulary-of {path} is no language model's: name the folder of a finished run on "
            "a text, or of a model in Llama's form"
        )
    return found


def _vocabulary_of_run(path: Path, keyring: KeyRing | None) -> Vocabulary | None:
    record: object = read_json(path / records.RECORD, "the record of a finished run")
    known = cast("dict[str, Any]", record) if isinstance(record, dict) else {}
    if known.get("task") != records.LANGUAGE:
        return None
    dataset: object = known.get("dataset")
    if isinstance(dataset, dict) and "vocabulary" in dataset:
        return load_learned(path, keyring).pairs
    classes: object = known.get("classes")
    return Characters(tuple(classes)) if language.is_vocabulary(classes) else None


def template_of(path: Path) -> Template | None:
    """Return what conversations are worded with by a language model; None: it knows none.

    Args:
        path: folder of its run, or of a model in Llama's form.

    Raises:
        WorkloadError: it is another form than is known here, or damaged.
    """
    try:
        if llama_folder.is_one(path):
            return llama_folder.read_template(path)
        record: object = read_json(path / records.RECORD, "the record of a finished run")
        return template_of_record(record)
    except WorkloadError as error:
        raise WorkloadError(f"--vocabulary-of {path}: {error}") from error


def check_sizes(start: Start, requested: Requested) -> None:
    """Refuse a model of another size or kind than the weights.

    Raises:
        WorkloadError: names the option, what was given and what the weights have.
    """
    for name, size in start.sizes.items():
        given = getattr(requested, name)
        if given is not None and given != size:
            option = "--" + name.replace("_", "-")
            raise WorkloadError(
                f"{option} is {given}, and the model in {start.place}, which is begun with "
                f"(--start), has {size}: leave {option} out"
            )
    own = start.architecture.own
    if own is not None and requested.code is None:
        raise WorkloadError(
            f"--start {start.place} is of {own.name}, a team's own model: name that and its code "
            "as well (--model, --code)"
        )
    if requested.model not in ("auto", start.model):
        raise WorkloadError(
            f"--model is {requested.model}, and the model in {start.place}, which is begun with "
            f"(--start), is {start.model}: use the same one"
        )
    if own is not None and dict(own.options) != dict(requested.options):
        raise WorkloadError(
            f"--start {start.place} is of {own.name} with other options ({dict(own.options)}): "
            "use the same ones (--option)"
        )


def _check_data(start: Start, dataset: Dataset) -> None:
    architecture = start.architecture
    is_linear = architecture.family == "table" and architecture.network == linear.NAME
    if architecture.trees or is_linear:
        kept = "a linear model" if is_linear else "trees"
        raise WorkloadError(
            f"--start {start.place}: that run kept {kept}, and a training begins with the weights "
            "of a network: name a run with --model network"
        )
    if architecture.widths:
        raise WorkloadError(
            f"--start {start.place}: units were taken out of that network (--prune), and none can "
            "be made again: begin with a run from which none were"
        )
    for what, given, wanted in (
        ("data", architecture.family, dataset.family),
        ("task", start.task, dataset.task),
    ):
        if given != wanted:
            raise WorkloadError(
                f"--start {start.place} is of other {what} ({given}) than this dataset "
                f"({wanted}): begin with a run of the same kind"
            )
    _check_classes(start, dataset)
    _check_inputs(start, dataset)
    if start.record is None:
        return
    known = start.record["dataset"]
    is_same = known["content_digest"] == dataset.description["content_digest"]
    if is_same and known["split_digest"] != dataset.description["split_digest"]:
        raise WorkloadError(
            f"--start {start.place} learned from the same rows, split otherwise: it has seen some "
            "that are held out here, so that the score would be too good; make the dataset with "
            f"--seed {known['seed']} and the share of that run"
        )


def _check_classes(start: Start, dataset: Dataset) -> None:
    if dataset.family == language.FAMILY:
        if start.vocabulary == dataset.vocabulary:
            wanted = dataset.template
            if wanted is not None and start.template not in (None, wanted):
                raise WorkloadError(
                    f"--start {start.place} words conversations otherwise than this dataset: make "
                    f"the dataset as that model has it (dataset --vocabulary-of {start.place})"
                )
            return
        raise WorkloadError(
            f"--start {start.place} has another vocabulary ({_sized(start.vocabulary)}) than this "
            f"dataset ({_sized(dataset.vocabulary)}): make the dataset with that one (dataset "
            f"--vocabulary-of {start.place})"
        )
    if start.classes == dataset.classes:
        return
    raise WorkloadError(
        f"--start {start.place} is of other classes "
        f"({_few(start.classes)}) than this dataset ({_few(dataset.classes)}): the weights of the "
        "last layer are of these; begin with a run of the same classes, in the same order"
    )


def _check_inputs(start: Start, dataset: Dataset) -> None:
    """Refuse inputs that the first layer would take for others."""
    features = dataset.description["features"]
    if dataset.family == "images":
        (feature,) = features
        shape, largest = tuple(feature["shape"]), float(feature.get("largest", 1.0))
        known = start.architecture
        if (known.shape, known.largest) != (shape, largest):
            raise WorkloadError(
                f"--start {start.place} is of images of {known.shape} with values up to "
                f"{known.largest:g}, and here they are of {shape} up to {largest:g}: begin with a "
                "run on images of the same form"
            )
    if dataset.family == "table" and start.preprocessing is not None:
        rows = dataset.rows("train")
        inputs = {name: values[rows] for name, values in dataset.inputs.items()}
        here = {_kind(each) for each in models.fit(inputs, features).columns}
        there = {_kind(each) for each in start.preprocessing.columns}
        if here != there:
            name, kind = sorted(here ^ there)[0]
            raise WorkloadError(
                f"--start {start.place} is of other columns than this dataset: {name} ({kind}) is "
                f"only {'here' if (name, kind) in here else 'there'}; begin with a run on the "
                "same columns"
            )


def _kind(column: object) -> tuple[str, str]:
    name: str = getattr(column, "name", "")
    return name, type(column).__name__.removesuffix("Column").lower()


def _sized(vocabulary: Vocabulary | None) -> str:
    return "none" if vocabulary is None else f"{vocabulary.size:,} {vocabulary.unit}"


_MOST_SHOWN = 5


def _few(classes: list[str] | None) -> str:
    if classes is None:
        return "a number"
    return ", ".join(classes[:_MOST_SHOWN]) + (" …" if len(classes) > _MOST_SHOWN else "")
