"""What a stack of one machine says, checked against its data and each other key."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from falaj.components.local.arguments.dataset import DIGITS, TASK
from falaj.components.local.arguments.training_run import MODEL
from falaj.components.local.machine import TABLES, TEXTS
from falaj.components.nearest import nearest
from falaj.components.specification.parallel import OF_LAYERS
from falaj.components.specification.property_names import camel
from falaj.components.specification.workload_bounds import bound
from falaj.stacks.settings.feature_tables import check_features
from falaj.stacks.settings.local import LocalSettings, ServiceSettings, holds_shards
from falaj.stacks.settings.local_training import check_training
from falaj.stacks.settings.paths import is_file, is_folder, not_there, resolved
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, format_value
from falaj.stacks.settings.suggestions import similar_files
from falaj.stacks.settings.watching import check_watch
from falaj.workloads.bounds import LANGUAGE, MODELS_TAKEN
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import picture_folder, shard_folder
from falaj.workloads.training.decoder_size import DECODER_WIDTH
from falaj.workloads.training.header import read_header

#: Most columns that a message names.
_SHOWN: Final = 12


def check_batches(settings: LocalSettings, root: Path) -> list[Finding]:
    """Inputs of predictions that are not there, or can't lie plain."""
    found: list[Finding] = []
    for name, batch in settings.batches.items():
        for index, path in enumerate(batch.inputs):
            place = resolved(path, root)
            if not place.exists():
                message = not_there(place, "file or folder")
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
        *check_training(settings, root),
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
        return [Finding(("dataset",), not_there(source), _other_files(settings, root))]
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
    if holds_shards(folder):
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
