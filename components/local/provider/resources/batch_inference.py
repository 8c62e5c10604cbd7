"""BatchInference: predictions of files, named by the digest of everything that decides them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from falaj.components.local import machine
from falaj.components.local.arguments.batch_inference import BatchInferenceArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.fields import (
    Table,
    flag,
    optional,
    text,
    texts,
    whole,
)
from falaj.components.local.provider.handler import Change, Context, Handler
from falaj.wire.documents import is_mapping
from falaj.wire.values import UNKNOWN, Value, Values, has_unknown

_MODULE: Final = "falaj.workloads.batch"
_RECORD: Final = ".json"
_NOT_DECISIVE: Final = frozenset({"inputs", "keyring", "threads", "retain", "site"})


class BatchInferenceHandler(Handler):
    """Predicts in a process group of its own; the same input and package do no work again."""

    type_name: ClassVar[str] = "BatchInference"
    summary: ClassVar[str] = "Predictions of a model for files of rows."
    arguments: ClassVar[type] = BatchInferenceArgs
    filled: ClassVar[Mapping[str, str]] = {
        "inputsSha256": "Digest of the input, so that a changed file is a change.",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "The file with the predictions.",
        "rows": "Rows that were predicted.",
        "badRows": "Rows that were set aside.",
        "digest": "SHA-256 of the predictions, before they are sealed.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """The input must be there; its digest becomes an input."""
        checked = super().check(given, old)
        if has_unknown(checked.get("inputs", ())):
            checked["inputsSha256"] = UNKNOWN
            return checked
        paths = [Path(each) for each in texts(checked, "inputs")]
        if not paths or not all(each.is_absolute() for each in paths):
            reason = "allowed: a list of absolute paths, at least one"
            raise InvalidInputsError([InvalidInput("inputs", reason)])
        checked["inputsSha256"] = _digest(paths)
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """Predictions that someone has removed are made again."""
        if Path(text(state, "path")).is_file():
            return {}
        return {"path": Change(replaces=True, is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """The file is known when the package is."""
        expected = super().preview(inputs, state)
        if state is not None:
            expected.update(self.outputs_of(state))
        elif not has_unknown(inputs):
            expected["path"] = str(self._path(inputs))
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Predict, or go on behind what an interrupted deployment has done."""
        output = self._output(inputs)
        machine.make_folder(output.parent)
        values = {
            "model": text(inputs, "model"),
            "version": whole(inputs, "version"),
            "registry": str(self.site_of(inputs).registry),
            "keyring": text(inputs, "keyring"),
            "output": str(output),
            "encoding": optional(inputs, "encoding"),
            "decimal": optional(inputs, "decimal"),
            "threads": optional(inputs, "threads"),
        }
        flags = {"--plain": flag(inputs, "plain"), "--skip-bad-rows": flag(inputs, "skipBadRows")}
        arguments = [
            "run", *workloads.options(values),
            *(f"--keep={each}" for each in texts(inputs, "keep")),
            *(name for name, given in flags.items() if given),
            # What is left of the same digest is damaged, or it would be taken as it is.
            "--overwrite", "--progress", "json", "--json", "--", *texts(inputs, "inputs"),
        ]  # fmt: skip
        record = workloads.run(
            context, _MODULE, arguments, what="the predictions",
            on_line=lambda line: _show(context, line),
        )  # fmt: skip
        outputs = {**_outputs(record), "path": str(record["path"])}
        context.say(f"{outputs['rows']:,} rows predicted")
        if outputs["badRows"]:
            context.say(f"{outputs['badRows']:,} bad rows are set aside, with the reasons")
        return output.parent.name, {**inputs, **outputs}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when the predictions or their record are."""
        record = machine.read_json(self._record(state))
        if record is None or self.drift(state):
            return None
        return {**state, **_outputs(record)}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Nothing that can change in place predicts again."""
        del context, resource_id
        return {**inputs, **self.outputs_of(state)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """Remove the predictions and what is beside them, unless they are retained."""
        del context
        if not flag(state, "retain"):
            machine.remove_tree(Path(text(state, "path")).parent)

    def _output(self, inputs: Values) -> Path:
        folder = f"{text(inputs, 'name')}-{_decisive(self.table, inputs)[:16]}"
        file = f"{text(inputs, 'name')}.{text(inputs, 'format')}"
        return self.site_of(inputs).batches / folder / file

    def _path(self, inputs: Values) -> Path:
        output = self._output(inputs)
        return output if flag(inputs, "plain") else output.with_name(f"{output.name}.sealed")

    @staticmethod
    def _record(state: Values) -> Path:
        path = Path(text(state, "path"))
        return path.with_name(path.name.removesuffix(".sealed") + _RECORD)


def _decisive(table: Table, inputs: Mapping[str, Value]) -> str:
    """SHA-256 of the input's digest, the package's and every option that changes results."""
    keys = [key for key in table if key not in _NOT_DECISIVE and inputs.get(key) is not None]
    found = {key: inputs[key] for key in keys}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _digest(paths: list[Path]) -> str:
    """SHA-256 over names and contents of all files."""
    named = (
        (path.name if path == given else str(path.relative_to(given)), path)
        for given in paths
        for path in _files(given)
    )
    return machine.digest_of_files(named, "inputs")


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if not path.is_file():
            reason = f"there is no file or folder {path}"
            raise InvalidInputsError([InvalidInput("inputs", reason)])
        yield path
        return
    for each in sorted(path.rglob("*")):
        # Links are refused by the predictions' own reading, in words.
        if each.is_file() and not each.is_symlink():
            yield each


def _show(context: Context, line: str) -> None:
    try:
        event: Any = json.loads(line)
    except ValueError:
        return
    if is_mapping(event) and event.get("event") == "progress":
        context.status(str(event.get("message", "")))


def _outputs(record: Mapping[str, Any]) -> Values:
    return {
        "rows": int(record["rows"]),
        "badRows": int(record["bad_rows"]),
        "digest": str(record["sha256"]),
    }
