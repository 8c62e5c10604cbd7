"""Dataset: an immutable snapshot of rows, named by the digest of its content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from falaj.components.local import machine
from falaj.components.local.arguments.dataset import DIGITS, DatasetArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.beginnings import vocabulary_sha256
from falaj.components.local.provider.fields import (
    flag,
    optional,
    text,
)
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.wire.documents import is_mapping, mapping
from falaj.wire.values import UNKNOWN, Values, has_unknown

_ALLOWED: Final = (
    "digits, or the absolute path of a .csv or .parquet file, of a .txt or .md text, of a .jsonl "
    "file of conversations or of a folder of pictures, of texts or of shards"
)
_TABLES: Final = "featureTables"


class DatasetHandler(Handler):
    """Takes the snapshot; another content, target or split is another dataset."""

    type_name: ClassVar[str] = "Dataset"
    summary: ClassVar[str] = "A snapshot of rows to learn from, with schema and statistics."
    arguments: ClassVar[type] = DatasetArgs
    filled: ClassVar[Mapping[str, str]] = {
        "sourceSha256": "Digest of the source file, so that a changed file is a change.",
        "featuresSha256": "Digest of the feature tables, so that a changed one is a change.",
        "vocabularyOfSha256": "Digest of that vocabulary, so that another one is a change.",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "Folder of the snapshot.",
        "digest": "SHA-256 that names the dataset: content, target and split.",
        "family": "images, table or text.",
        "resolvedTask": "classification, regression or language.",
        "targetName": "Name of what is predicted.",
        "rows": "Number of rows.",
        "features": "Number of inputs.",
        "classes": "Names of the classes, of a text its characters; empty for regression and "
        "other tokens.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """The file must be there; its digest and that of a vocabulary become inputs."""
        checked = super().check(given, old)
        _check_vocabulary(checked)
        _check_features(checked)
        source = checked.get("source")
        if not isinstance(source, str):
            checked["sourceSha256"] = UNKNOWN
            return checked
        if source == DIGITS:
            checked["sourceSha256"] = "built in"
            return checked
        path = Path(source)
        is_folder, suffix = path.is_dir(), path.suffix.lower()
        is_file = suffix in (*machine.TABLES, *machine.TEXTS)
        if not path.is_absolute() or not (is_folder or is_file):
            reason = f"given {source!r}; allowed: {_ALLOWED}"
            raise InvalidInputsError([InvalidInput("source", reason)])
        if is_folder:
            named = ((str(each.relative_to(path)), each) for each in _files(path))
            checked["sourceSha256"] = machine.digest_of_files(named, "source")
            return checked
        if checked.get("target") is None and suffix in machine.TABLES:
            reason = f"missing; a table needs the name of the column to predict ({source})"
            raise InvalidInputsError([InvalidInput("target", reason)])
        checked["sourceSha256"] = _digest(path)
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """A snapshot that someone has removed is taken again."""
        if (Path(text(state, "path")) / "dataset.json").is_file():
            return {}
        return {"path": Change(replaces=True, is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """Reads the source without writing, so that bad rows are refused before any work."""
        if has_unknown(
            {k: v for k, v in inputs.items() if k not in {"site", "keyring", "retain"}}
        ):
            return super().preview(inputs, state)
        # A vocabulary may be sealed; a key ring that isn't there yet has sealed nothing.
        known = "vocabularyOf" in inputs and not has_unknown({"keyring": inputs.get("keyring")})
        keyring = workloads.options({"keyring": optional(inputs, "keyring") if known else None})
        arguments = [*_options(inputs), *keyring, "--dry-run", "--json"]
        described = workloads.run(
            Context("preview"),
            workloads.TRAINING,
            ["dataset", *arguments],
            what="the dataset's check",
        )
        expected = {**inputs, **_outputs(described)}
        expected["path"] = UNKNOWN
        if isinstance(inputs.get("site"), str):
            expected["path"] = str(self.site_of(inputs).datasets / str(described["digest"])[:16])
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Take the snapshot; the same one from before is adopted."""
        folder = self.site_of(inputs).datasets
        machine.make_folder(folder)
        context.status("reading and checking the rows")
        keyring = workloads.options({"keyring": optional(inputs, "keyring")})
        arguments = [*_options(inputs), "--output", str(folder), *keyring, "--json"]
        described = workloads.run(
            context, workloads.TRAINING, ["dataset", *arguments], what="the dataset's snapshot"
        )
        outputs = {**_outputs(described), "path": str(described["path"])}
        context.say(f"{outputs['rows']:,} rows of {outputs['features']} inputs")
        for note in described.get("notes", ()):
            context.say(str(note))
        return Path(str(described["path"])).name, {**inputs, **outputs}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when the snapshot is."""
        described = machine.read_json(Path(text(state, "path")) / "dataset.json")
        return None if described is None else {**state, **_outputs(described)}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Nothing that can change in place needs work."""
        del context, resource_id
        return {**inputs, **self.outputs_of(state)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Remove the snapshot, unless it is retained."""
        del context
        if not flag(state, "retain"):
            machine.remove_tree(Path(text(state, "path")))


def _check_vocabulary(checked: Values) -> None:
    """Refuse two vocabularies. The digest of a model's becomes an input.

    Raises:
        InvalidInputsError: both are given, or the model's isn't there.
    """
    key = "vocabularyOf"
    if key not in checked:
        return
    if "vocabulary" in checked:
        reason = "takes a model's tokens, and 'vocabulary' learns others; leave one of both out"
        raise InvalidInputsError([InvalidInput(key, reason)])
    checked["vocabularyOfSha256"] = (
        UNKNOWN
        if has_unknown({key: checked[key]})
        else vocabulary_sha256(Path(text(checked, key)), key)
    )


def _check_features(checked: Values) -> None:
    """Have the digest of the feature tables become an input.

    Raises:
        InvalidInputsError: one isn't there.
    """
    tables = mapping(checked.get(_TABLES))
    if has_unknown({_TABLES: checked.get(_TABLES)}):
        checked["featuresSha256"] = UNKNOWN
    elif tables:
        named = ((name, Path(str(mapping(each)["source"]))) for name, each in tables.items())
        checked["featuresSha256"] = machine.digest_of_files(named, _TABLES)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        reason = f"there is no file {path}; give {_ALLOWED}"
    except OSError as error:
        reason = f"{path} can't be read: {error.strerror}"
    raise InvalidInputsError([InvalidInput("source", reason)])


def _files(folder: Path) -> Iterator[Path]:
    """All files below a folder in the order of their names, those that are hidden left out."""

    def fail(error: OSError) -> None:
        reason = f"{error.filename or folder} can't be read: {error.strerror}"
        raise InvalidInputsError([InvalidInput("source", reason)])

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(place, each) for each in sorted(names) if not each.startswith("."))


def _options(inputs: Values) -> list[str]:
    keys = ("source", "target", "task", "seed", "holdout", "context", "vocabulary")
    values = {key: optional(inputs, key) for key in keys}
    return [
        *workloads.options({**values, "vocabulary-of": optional(inputs, "vocabularyOf")}),
        *workloads.features_options(optional(inputs, "featureTime"), inputs.get(_TABLES)),
    ]


def _outputs(described: Mapping[str, Any]) -> Values:
    rows, is_numbered = described["rows"], "vocabulary" in (described["features"] or [{}])[0]
    return {
        "digest": str(described["digest"]),
        "family": str(described["family"]),
        "resolvedTask": str(described["task"]),
        "targetName": str(described["target"]),
        "rows": int(rows["total"] if is_mapping(rows) else rows),
        "features": len(described["features"]),
        "classes": [] if is_numbered else [str(name) for name in described.get("classes") or ()],
    }
