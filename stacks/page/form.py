"""A form made of a model's inputs, what somebody wrote into it, and what the model answered.

What a manifest says beside the tensors themselves (kinds of columns, the training rows' figures)
makes the form a better one. A package without it has a form as well.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Final, Literal, TypeGuard

import orjson

from falaj.wire.documents import is_mapping, mapping, sequence
from falaj.workloads.bounds import SERVICE
from falaj.workloads.chat import described_template
from falaj.workloads.inference.language.completions import OF_VERSION
from falaj.workloads.training.dates import DateForm, full_year
from falaj.workloads.training.numerals import bare, number, readings
from falaj.workloads.training.record import LANGUAGE

InputKind = Literal[
    "number", "whole", "flag", "choice", "text", "words", "date", "image", "numbers", "texts",
]  # fmt: skip

MOST_FIELDS: Final = 400
"""Of a model with more inputs the row is pasted: nobody fills in so many fields."""
MOST_SHOWN: Final = 20
"""Classes that an answer lists, the likeliest first; and values of an output without a meaning."""
MOST_SENT: Final = 4_000
"""Characters of a request that are shown."""
_MOST_PIXELS: Final = 32 * 32
_EXACT: Final = 1e15
"""Below it whole numbers are exact, and are written out."""
_LONG: Final = 1e4
"""From it on two decimals are as many as anybody reads."""
_DAY: Final = re.compile(r"(\d+)\D(\d+)\D(\d+)")
_LARGEST_FLOAT32: Final = 3.4028235e38
_WHOLE: Final = {
    f"{sign}INT{bits}": (0 if sign else -(2 ** (bits - 1)), 2 ** (bits - (0 if sign else 1)) - 1)
    for sign in ("", "U")
    for bits in (8, 16, 32, 64)
}
NOTHING: Final = "\u2013"
"""Stands for a figure that isn't there."""
PASTED: Final = "row"
"""Name of the field into which the row of a model without a form is pasted."""
OTHER: Final = "other"


class RowError(Exception):
    """What was written into the form is no row; ``errors`` are messages by field."""

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


@dataclass(frozen=True)
class Field:
    """One input of a model in the form.

    Attributes:
        key: its name in the form, which says nothing of what it is called.
        name: what the model calls it.
        datatype: of the protocol.
        shape: sizes of one row, without the row's own dimension.
        kind: how it is filled in.
        hint: what the training rows had.
        choices: the most frequent texts of a column of few.
        typical: what stands in it at first.
        missing: whether it may be left empty.
        form: how the column writes dates; None where it has none.
        largest: the greatest value of a pixel.
    """

    key: str
    name: str
    datatype: str
    shape: tuple[int, ...]
    kind: InputKind
    hint: str = ""
    choices: tuple[str, ...] = ()
    typical: str = ""
    missing: bool = True
    form: DateForm | None = None
    largest: float = 1.0

    @property
    def other(self) -> str:
        """Name of the field for a text that isn't among the choices."""
        return f"{self.key}.{OTHER}"

    @property
    def size(self) -> int:
        """Values of one row."""
        return math.prod(self.shape)

    @property
    def height(self) -> int:
        """Of an image, in pixels."""
        return self.shape[-2]

    @property
    def width(self) -> int:
        """Of an image, in pixels."""
        return self.shape[-1]

    def tensor(self, values: Sequence[Any]) -> dict[str, Any]:
        """One row as a tensor of the protocol."""
        return {
            "name": self.name, "datatype": self.datatype, "shape": [1, *self.shape],
            "data": list(values),
        }  # fmt: skip

    def read(self, given: Mapping[str, str]) -> list[Any]:
        """The values of one row, from what was written.

        Raises:
            ValueError: it is none; the message says what is allowed.
        """
        text = given.get(self.key, "")
        match self.kind:
            case "image" | "numbers":
                parts = self._sized(text.replace(",", " ").replace(";", " ").split(), "numbers")
                read = self._whole if self.datatype in _WHOLE else self._number
                return [read(each) for each in parts]
            case "texts":
                return self._sized(text.replace("\r\n", "\n").split("\n"), "lines")
            case "choice":
                return [self._choice(text, given.get(self.other, ""))]
            case _:
                return [self._one(text)]

    def _one(self, text: str) -> Any:
        readers: Mapping[InputKind, Callable[[str], Any]] = {
            "number": self._number,
            "whole": self._whole,
            "flag": self._flag,
            "date": self._date,
        }
        return readers.get(self.kind, self._text)(text)

    def _flag(self, text: str) -> bool:
        if text not in ("true", "false"):
            raise ValueError("choose true or false")
        return text == "true"

    def _text(self, text: str) -> str:
        return text.replace("\r\n", "\n")

    def _sized(self, parts: list[str], what: str) -> list[str]:
        if len(parts) != self.size:
            raise ValueError(f"{len(parts)} {what} are given; needed are {self.size}")
        return parts

    def _number(self, text: str) -> float | None:
        if not text.strip() or text.strip().lower() in ("nan", "null"):
            if self.missing:
                return None
            raise ValueError("this model needs a number here")
        digits = bare(text)
        marks = readings([digits])
        if not marks:
            raise ValueError(f"{_short(text)} is no number; write one such as 12.5, 12,5 or ١٢")
        # "1.153" and "1,153" fit both: then the point is the one before decimals.
        value = number(digits, "." if "." in marks else ",")
        if not math.isfinite(value) or abs(value) > _LARGEST_FLOAT32:
            raise ValueError(
                f"{_short(text)} is too large; allowed is up to {_LARGEST_FLOAT32:.4g}"
            )
        return value

    def _whole(self, text: str) -> int:
        low, high = _WHOLE[self.datatype]
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"{_short(text)} is no whole number, such as 12") from None
        if not low <= value <= high:
            raise ValueError(f"{value} is outside of {low} to {high}")
        return value

    def _choice(self, text: str, other: str) -> str:
        if text == OTHER:
            return other
        if not text:
            return ""
        place = text.removeprefix("c")
        if not place.isdecimal() or int(place) >= len(self.choices):
            raise ValueError("choose one of the list, or write another value")
        return self.choices[int(place)]

    def _date(self, text: str) -> str:
        if not text.strip():
            return ""
        try:
            day = date.fromisoformat(text.strip())
        except ValueError:
            raise ValueError(f"{_short(text)} is no date, such as 2026-11-30") from None
        if self.form is None:
            return day.isoformat()
        parts = {"y": f"{day.year:04d}", "m": f"{day.month:02d}", "d": f"{day.day:02d}"}
        return self.form.separator.join(parts[each] for each in self.form.order)


@dataclass(frozen=True)
class Form:
    """All inputs of a model; ``pasted`` where they are pasted as one document instead."""

    fields: tuple[Field, ...] = ()
    pasted: bool = False
    why: str = ""
    """Why the row is pasted."""
    continues: str = ""
    """The name of a language model, which goes on with a text; else empty."""
    answers: str = ""
    """The name of one that answers to conversations; else empty."""

    @property
    def is_of_texts(self) -> bool:
        """Whether it is a language model's."""
        return bool(self.continues or self.answers)

    def typical(self) -> dict[str, str]:
        """What stands in the form at first: medians and the most frequent texts."""
        if self.pasted:
            return {PASTED: '{"inputs": []}'}
        found: dict[str, str] = {}
        for each in self.fields:
            if each.kind == "choice":
                found[each.key] = "c0" if each.choices else OTHER
            else:
                found[each.key] = each.typical
        return found

    def read(self, given: Mapping[str, str]) -> dict[str, Any]:
        """A request of one row, or for one text.

        Raises:
            RowError: what was written is none.
        """
        if self.pasted:
            return _pasted(given.get(PASTED, ""))
        values: list[list[Any]] = []
        errors: dict[str, str] = {}
        for each in self.fields:
            try:
                values.append(each.read(given))
            except ValueError as error:
                errors[each.key] = str(error)
        if errors:
            raise RowError(errors)
        read = list(zip(self.fields, values, strict=True))
        if name := self.continues or self.answers:
            return {"model": name, **{each.key: value for each, (value,) in read}}
        return {"inputs": [each.tensor(value) for each, value in read]}

    def example(self) -> dict[str, Any] | None:
        """The row that the form makes at first; None where that is none."""
        try:
            return None if self.pasted or self.is_of_texts else self.read(self.typical())
        except RowError:
            return None


#: Of a request to a language model: named as the API does.
_OF_SAMPLING: Final = (
    Field(
        "max_tokens", "Tokens at most", "UINT32", (1,), "whole",
        f"1 to {SERVICE['max_tokens'].usual:,} by default",
        typical="200", missing=False,
    ),
    Field(
        "temperature", "Temperature", "FP32", (1,), "number",
        "0 always takes the likeliest token; 2 is the most", typical="0.7", missing=False,
    ),
)  # fmt: skip
_OF_TEXTS: Final = (
    Field("prompt", "Text to go on with", "BYTES", (1,), "words", "may be empty"), *_OF_SAMPLING,
)  # fmt: skip
SYSTEM: Final = "system"
MESSAGE: Final = "message"
_OF_CHATS: Final = (
    Field(MESSAGE, "Your message", "BYTES", (1,), "words"),
    Field(
        SYSTEM, "Instructions", "BYTES", (1,), "words",
        "the system message, before all others; may be empty",
    ),
    *_OF_SAMPLING,
)  # fmt: skip


def form_of(manifest: Mapping[str, Any]) -> Form:
    """The form of a version, by its signed manifest."""
    if manifest.get("task") == LANGUAGE:
        name = str(manifest.get("model", ""))
        if described_template(manifest.get("dataset")) is not None:
            return Form(_OF_CHATS, answers=name)
        return Form(_OF_TEXTS, continues=name)
    inputs = [mapping(each) for each in sequence(manifest.get("inputs"))]
    if len(inputs) > MOST_FIELDS:
        return Form(pasted=True, why=f"the model has {len(inputs)} inputs")
    described = {
        str(each["name"]): each
        for each in map(mapping, sequence(mapping(manifest.get("dataset")).get("features")))
        if "name" in each
    }
    statistics = mapping(mapping(manifest.get("statistics")).get("features"))
    # In the order of the table's columns, as who wrote the rows knows them.
    places = {name: place for place, name in enumerate(described)}
    inputs.sort(key=lambda each: places.get(str(each.get("name", "")), len(places)))
    fields: list[Field] = []
    for place, tensor in enumerate(inputs):
        name = str(tensor.get("name", ""))
        made = _field(
            f"i{place}", name, tensor, mapping(described.get(name)), mapping(statistics.get(name))
        )
        if made is None:
            return Form(pasted=True, why=f"the input {name!r} has no fixed size")
        fields.append(made)
    if not fields:
        return Form(pasted=True, why="the package doesn't say what the model takes")
    return Form(tuple(fields))


def _field(
    key: str, name: str, tensor: Mapping[str, Any], described: Mapping[str, Any],
    statistics: Mapping[str, Any],
) -> Field | None:  # fmt: skip
    shape = sequence(tensor.get("shape"))
    sizes = [each for each in shape[1:] if isinstance(each, int) and each > 0]
    if not shape or len(sizes) != len(shape) - 1 or shape[0] not in (-1, 1):
        return None
    datatype = str(tensor.get("datatype", ""))
    missing = tensor.get("missing") is True
    made = Field(key, name, datatype, tuple(sizes), "number", _hint(statistics), missing=missing)
    if datatype == "BYTES":
        return _text(made, described, statistics)
    if datatype == "BOOL":
        return replace(made, kind="flag", typical="false") if made.size == 1 else None
    if made.size != 1:
        return _many(made, described)
    typical = _median(statistics)
    if datatype in _WHOLE:
        return replace(made, kind="whole", typical=typical or "0")
    return replace(made, typical=typical or ("" if missing else "0"))


def _many(made: Field, described: Mapping[str, Any]) -> Field:
    largest = described.get("largest")
    flat = len(made.shape) >= 2 and made.size == made.height * made.width <= _MOST_PIXELS
    if not flat or described.get("kind") != "image" or not _is_number(largest) or largest <= 0:
        return replace(made, kind="numbers", typical=" ".join(["0"] * made.size))
    rows = [" ".join(["0"] * made.width)] * made.height
    return replace(made, kind="image", typical="\n".join(rows), largest=float(largest))


def _text(made: Field, described: Mapping[str, Any], statistics: Mapping[str, Any]) -> Field:
    if made.size != 1:
        return replace(made, kind="texts", typical="\n" * (made.size - 1))
    kind = described.get("kind")
    choices = _most_frequent(mapping(statistics.get("categories")))
    if kind == "date":
        form = _date_form(mapping(described.get("form")))
        # Any date can be chosen: how many others there were says nothing.
        hint = _hint({**statistics, "others": None})
        typical = _chosen(choices[0], form) if choices and form else ""
        return replace(made, kind="date", form=form, hint=hint, typical=typical)
    if choices and kind != "words":
        return replace(made, kind="choice", choices=tuple(choices))
    return replace(made, kind="words" if kind == "words" else "text")


def _most_frequent(counts: Mapping[str, Any]) -> list[str]:
    """Texts, the most frequent first: a manifest has them by the alphabet."""

    def place(text: str) -> tuple[float, str]:
        count = counts[text]
        return (-count if _is_number(count) else 0.0, text)

    return sorted(map(str, counts), key=place)


def _chosen(text: str, form: DateForm) -> str:
    """A date of a column as a browser's field for dates has it; empty where it is none."""
    if not (found := _DAY.match(text)):
        return ""
    part = dict(zip(form.order, map(int, found.groups()), strict=True))
    try:
        return date(full_year(part["y"]), part["m"], part["d"]).isoformat()
    except ValueError:
        return ""


def _date_form(described: Mapping[str, Any]) -> DateForm | None:
    match described:
        case {"separator": str(separator), "order": "ymd" | "dmy" | "mdy" as order}:
            return DateForm(separator, order, str(described.get("time_mark", "")), True)
        case _:
            return None


def _hint(statistics: Mapping[str, Any]) -> str:
    low, high = statistics.get("minimum"), statistics.get("maximum")
    parts: list[str] = []
    if _is_number(low) and _is_number(high):
        parts.append(f"in training {figure(low)} to {figure(high)}")
    others = statistics.get("others")
    if isinstance(others, int) and others and statistics.get("categories"):
        parts.append(f"{others:,} rows of training had other values")
    missing = statistics.get("missing")
    if isinstance(missing, int) and missing:
        parts.append(f"missing in {missing:,} rows")
    return "; ".join(parts)


def _median(statistics: Mapping[str, Any]) -> str:
    edges = [each for each in sequence(statistics.get("edges")) if _is_number(each)]
    return _plain(edges[len(edges) // 2]) if edges else ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def figure(value: Any) -> str:
    """A number as people read it; a text where it is none."""
    if not _is_number(value):
        return "not a number"
    if abs(value) >= _EXACT:
        return f"{value:.6g}"
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= _LONG else f"{value:.6g}"


def _plain(value: float) -> str:
    """A number as people type it."""
    return figure(value).replace(",", "")


def _pasted(text: str) -> dict[str, Any]:
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise RowError({PASTED: f"this is no JSON: {error}"}) from None
    if not is_mapping(found) or not isinstance(found.get("inputs"), list):
        raise RowError({PASTED: 'give an object with "inputs", a list of tensors'})
    return {"inputs": found["inputs"]}


def written(row: Mapping[str, Any]) -> str:
    """A request as it is sent, cut where it is long."""
    text = orjson.dumps(row).decode()
    return text if len(text) <= MOST_SENT else f"{text[:MOST_SENT]}… ({len(text):,} characters)"


def _short(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


@dataclass(frozen=True)
class Share:
    """A class and how probable it is; ``width`` of 100 is how long its bar is."""

    name: str
    probability: float
    width: float


@dataclass(frozen=True)
class Answer:
    """What a model said about one row.

    Attributes:
        version: the version that answered.
        value: what it predicts.
        shares: the likeliest classes; none of a regression.
        more: how many classes are not listed.
        others: outputs without a meaning of their own, as name and values.
        before: the text that a language model was given.
        text: how it goes on; None of other models.
    """

    version: str
    value: str = ""
    shares: tuple[Share, ...] = ()
    more: int = 0
    others: tuple[tuple[str, str], ...] = field(default=())
    before: str = ""
    text: str | None = None


def text_of(document: object, row: Mapping[str, Any]) -> Answer | None:
    """Read how a language model goes on with the text of ``row``; None where it is no answer."""
    found = mapping(document)
    choice = mapping(next(iter(sequence(found.get("choices"))), None))
    if not isinstance(text := choice.get("text"), str):
        return None
    version = str(found.get("system_fingerprint", "")).removeprefix(OF_VERSION)
    return Answer(version, before=str(row["prompt"]), text=text)


def answer_of(document: object, manifest: Mapping[str, Any]) -> Answer | None:
    """Read an answer of the protocol; None where it is none.

    Args:
        document: what the server answered.
        manifest: of the version that answered.
    """
    found = mapping(document)
    if not isinstance(found.get("outputs"), list):
        return None
    outputs: dict[str, list[Any]] = {}
    for each in map(mapping, found["outputs"]):
        outputs[str(each.get("name", ""))] = sequence(each.get("data"))
    classes = [str(each) for each in sequence(manifest.get("classes"))]
    roles = _roles(manifest)
    value, shares, more = "", (), 0
    stated = outputs.get(roles["probabilities"], [])
    if stated and all(map(_is_number, stated)):
        del outputs[roles["probabilities"]]
        names = classes if len(classes) == len(stated) else [str(n) for n in range(len(stated))]
        order = sorted(zip(names, stated, strict=True), key=lambda each: -each[1])
        shares = tuple(
            Share(name, float(p), 100 * min(1.0, max(0.0, float(p))))
            for name, p in order[:MOST_SHOWN]
        )
        more, value = max(0, len(order) - MOST_SHOWN), order[0][0]
    for role in ("label", "prediction"):
        values = outputs.get(roles[role], [])
        if len(values) == 1:
            del outputs[roles[role]]
            value = values[0] if isinstance(values[0], str) else figure(values[0])
            break
    others = tuple((name, _values(data)) for name, data in outputs.items())
    return Answer(str(found.get("model_version", "")), value, shares, more, others)


def _roles(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Which output is what: where columns have the usual names, outputs have others."""
    roles = {each: each for each in ("probabilities", "label", "prediction")}
    for each in map(mapping, sequence(manifest.get("outputs"))):
        if each.get("role") in roles:
            roles[str(each["role"])] = str(each.get("name", ""))
    return roles


def _values(data: list[Any]) -> str:
    shown = ", ".join(
        each if isinstance(each, str) else figure(each) for each in data[:MOST_SHOWN]
    )
    return f"{shown}, … ({len(data):,} values)" if len(data) > MOST_SHOWN else shown
