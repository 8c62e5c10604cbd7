"""What a stack of one machine says of training, checked against its data and what is there."""

from __future__ import annotations

from pathlib import Path

from falaj.components.local.arguments.training_run import LORA_MATRICES, MODEL
from falaj.components.specification.parallel import OF_LAYERS, PROCESSES, RECOMPUTE
from falaj.components.specification.property_names import camel
from falaj.stacks.settings.local import LocalSettings, TrainingSettings
from falaj.stacks.settings.paths import is_file, not_there, resolved
from falaj.stacks.settings.problems import Drop, Finding, format_value
from falaj.stacks.settings.tracking import check_tracking
from falaj.workloads.bounds import DECODER, IMAGE_NETWORKS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.own_code import check_options, find, read_folder


def check_training(settings: LocalSettings, root: Path) -> list[Finding]:
    """Keys of training that contradict each other or the data, and files that aren't there."""
    return [
        *_check_model(settings.training, root),
        *_check_division(settings.training, is_text=settings.is_text(root)),
        *_check_word(settings, root),
        *_check_smaller(settings, root),
        *_check_begun(settings, root),
        *check_tracking(settings.training.tracking, root),
    ]


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
        is_there = place.is_dir()
    except OSError as error:
        return [*found, Finding((*above, "code"), f"{place}: {error.strerror}")]
    if not is_there:
        return [*found, Finding((*above, "code"), not_there(place, "folder"))]
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


def _without_layers(training: TrainingSettings) -> list[Finding]:
    """What only the layers of a language model can have."""
    found: list[Finding] = []
    why = "which is of a language model's {}, and the dataset is no text"
    layers = why.format("layers")
    # A class of one's own says itself how its matrices are divided, which the run asks it for.
    is_own = training.model is not None and training.model not in MODEL.words
    for part in OF_LAYERS:
        number = getattr(training.division, part)
        if number > 1 and not (is_own and part == "tensor"):
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
