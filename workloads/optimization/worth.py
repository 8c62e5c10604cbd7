"""Whether a model is worth serving: better than guessing, and not worse than what serves now.

Two models are compared row by row on the same held-out rows. A difference counts when its mean is
more than `margin` standard errors from none; what is less may be chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from falaj.workloads.chat import described_template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.optimization.comparison import (
    Session,
    open_session,
    run_in_batches,
    session_of,
)
from falaj.workloads.optimization.remembered import nats_of, past_of
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.layout import MANIFEST
from falaj.workloads.registry.package import Package, open_package
from falaj.workloads.remembering import layers_of
from falaj.workloads.training.language import TOKENS
from falaj.workloads.training.record import FIRST, LANGUAGE
from falaj.workloads.training.snapshot import Dataset, Rows, open_dataset
from falaj.workloads.vocabulary import described_pairs

CHANCE: Final = 0.05
"""How often chance alone may pass for a difference."""

_MANY_ROWS: Final = 1_000
"""From here on Student's distribution is the normal one, to two thousandths of a quantile."""

LEAST_ROWS: Final = 20
"""With fewer held-out rows that are new to the version that serves, the two aren't compared."""

_LEAST_PROBABILITY: Final = 1e-7
"""Of 32-bit floats: a softmax may round to 0, whose logarithm would be infinite."""

Losses = dict[str, NDArray[np.float64]]
"""A loss a row, lower is better, by figure: ``accuracy`` and ``log_loss``, ``rmse``, or
``nats_per_character``."""


def losses_of(answers: NDArray[Any], labels: NDArray[Any]) -> Losses:
    """Return each row's losses.

    Args:
        answers: probabilities (rows, classes), or predictions (rows, 1) in the target's unit.
        labels: class numbers (int64) or values, (rows,).
    """
    if labels.dtype.kind == "f":
        return {"rmse": (answers.reshape(-1).astype(np.float64) - labels) ** 2}
    chosen = answers[np.arange(len(labels)), labels].astype(np.float64)
    return {
        "accuracy": (answers.argmax(axis=1) != labels).astype(np.float64),
        "log_loss": -np.log(np.maximum(chosen, _LEAST_PROBABILITY)),
    }


@dataclass(frozen=True)
class Guess:
    """What one says who doesn't look at the row: the training rows' commonest class, or mean.

    Attributes:
        words: the same for a person.
        answers: probabilities (1, classes) by the classes' shares, or the mean (1, 1).
    """

    words: str
    answers: NDArray[np.float64]

    def losses(self, labels: NDArray[Any]) -> Losses:
        """Return each row's losses."""
        return losses_of(np.repeat(self.answers, len(labels), axis=0), labels)


def guess_of(description: Mapping[str, Any]) -> Guess:
    """Return the guess that the training part's statistics in dataset.json allow."""
    target = description["statistics"]["target"]
    if description["classes"] is None:
        mean = float(target["mean"])
        return Guess(f"always saying the mean, {mean:.6g},", np.array([[mean]]))
    counts = np.array([target["counts"][name] for name in description["classes"]], dtype=float)
    # One more of each, so that a class that only held-out rows have is not impossible.
    shares = (counts + 1) / (counts + 1).sum()
    commonest = description["classes"][int(counts.argmax())]
    return Guess(f"always saying {commonest!r}", shares[np.newaxis, :])


def margin(rows: int) -> float:
    """Return how many standard errors chance exceeds as seldom as `CHANCE` says, to one side.

    The quantile of Student's distribution, which few rows need: of four it is 2.35, of many 1.645.
    https://www.itl.nist.gov/div898/handbook/eda/section3/eda3672.htm

    Args:
        rows: that were compared, two or more.
    """
    if rows > _MANY_ROWS:
        return NormalDist().inv_cdf(1 - CHANCE)
    low, high = 0.0, 1 / CHANCE
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _between(middle, rows - 1) < 1 - 2 * CHANCE else (low, middle)
        )
    return high


def _between(value: float, freedom: int) -> float:
    """The chance of Student's distribution from minus ``value`` to ``value``.

    Abramowitz, Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4:
    https://personal.math.ubc.ca/~cbm/aands/page_948.htm
    """
    angle = math.atan(value / math.sqrt(freedom))
    odd = freedom % 2
    term, total = math.cos(angle) if odd else 1.0, 0.0
    for step in range(2 if odd else 1, freedom, 2):
        total += term
        term *= step / (step + 1) * math.cos(angle) ** 2
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def clearly(mine: NDArray[np.float64], other: NDArray[np.float64]) -> int:
    """Return 1 where ``mine`` is lower beyond `margin`, -1 where it is higher, else 0."""
    gain = other - mine
    if len(gain) < 2 or not np.all(np.isfinite(gain)):
        return -1 if not np.all(np.isfinite(mine)) else 0
    mean, error = float(gain.mean()), float(gain.std(ddof=1)) / math.sqrt(len(gain))
    # Beyond rounding: two that answer alike differ in the last digit everywhere.
    if abs(mean) <= max(margin(len(gain)) * error, 1e-9 * float(np.abs(other).mean())):
        return 0
    return 1 if mean > 0 else -1


def value_of(figure: str, losses: NDArray[np.float64]) -> float:
    """Return a figure of rows' losses as it stands in a record."""
    mean = float(losses.mean())
    return {"accuracy": 1 - mean, "rmse": math.sqrt(mean)}.get(figure, mean)


def shown(figure: str, losses: NDArray[np.float64]) -> str:
    """Return a figure of rows' losses as a person says it."""
    value = value_of(figure, losses)
    if figure == "accuracy":
        return f"{100 * value:.2f} %"
    return f"{value:.6g}" if figure == "rmse" else f"{value:.4f}"


def _values(losses: Losses) -> dict[str, float]:
    return {figure: value_of(figure, each) for figure, each in losses.items()}


def _beside(mine: Losses, theirs: Losses, whose: str) -> str:
    return "; ".join(
        f"{figure.replace('_', ' ')} {shown(figure, mine[figure])}, that of {whose} "
        f"{shown(figure, theirs[figure])}"
        for figure in mine
    )


@dataclass(frozen=True)
class Worth:
    """What a model is worth.

    Attributes:
        guess: in words.
        baseline: the guess's figures on the held-out rows.
        model: the model's own.
        refusals: why it isn't served unasked; none where it is.
        served: the figures of the version that serves, and of the model on the same rows, with
            ``version`` and ``rows``; None where they weren't compared.
        notes: why they weren't.
    """

    guess: str
    baseline: dict[str, float]
    model: dict[str, float]
    refusals: list[str] = field(default_factory=list[str])
    served: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list[str])

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "chance": CHANCE,
            "guess": self.guess,
            "baseline": self.baseline,
            "model": self.model,
            "refusals": self.refusals,
            "served": self.served,
            "notes": self.notes,
        }


def check(refusals: list[str], accept: str, excluded: list[dict[str, str]]) -> None:
    """Let a model through, or refuse it.

    Args:
        refusals: of `Worth`.
        accept: ``better``, or ``any`` for whatever it is.
        excluded: columns that were left out, with ``name`` and ``reason``: often the cause.

    Raises:
        WorkloadError: it isn't worth serving, and ``accept`` is ``better``.
    """
    if not refusals or accept == "any":
        return
    hints = ["  " + refusal for refusal in refusals]
    if excluded:
        hints.append("columns that were left out:")
        hints += [f"  {item['name']!r}: {item['reason']}" for item in excluded]
    hints += [
        f"a difference counts where chance makes one like it in less than {CHANCE:.0%} of "
        "datasets",
        "mend the data or take more of it; or insist: --accept any, in a stack "
        "falaj:optimization.accept: any",
    ]
    raise WorkloadError("\n".join(["the model isn't worth serving; it is not published:", *hints]))


@dataclass(frozen=True)
class Followed:
    """What a language model is compared with guessing by: all characters of held-out windows.

    Attributes:
        nats: of a character, by window and the model, (N,).
        guessed: likewise, by one who knows how frequent each token is.
        tokens_a_character: nats of a token times it are those of a character.
    """

    nats: NDArray[np.float64]
    guessed: NDArray[np.float64]
    tokens_a_character: float = 1.0


def judge(
    answers: NDArray[Any],
    rows: Rows,
    description: Mapping[str, Any],
    served: Served | None,
    followed: Followed | None = None,
) -> Worth:
    """Compare a model with guessing, and with the version that serves.

    Args:
        answers: the model's, of `losses_of`; a language model's of what follows each window.
        rows: the held-out rows.
        description: the content of dataset.json.
        served: the version that serves; None where there is none.
        followed: of a language model, whose answers tell but little of how it guesses. Default:
            it is none.
    """
    own = losses_of(answers, rows.labels)
    if followed is not None:
        token = "character" if described_pairs(description) is None else "token"
        words = f"saying how frequent each {token} is"
        against = {FIRST[LANGUAGE]: followed.nats}, {FIRST[LANGUAGE]: followed.guessed}
    else:
        guess = guess_of(description)
        words, against = guess.words, (own, guess.losses(rows.labels))
    mine, guessed = against
    worth = Worth(words, _values(guessed), _values(mine))
    if not any(clearly(mine[name], guessed[name]) > 0 for name in mine):
        worth.refusals.append(
            f"it is no better than guessing ({words}) on {len(rows.labels):,} held-out "
            f"rows: {_beside(mine, guessed, 'guessing')}"
        )
    if served is None:
        return worth
    now = f"version {served.version}"
    try:
        theirs, chosen = served.losses(rows, description)
    except NotComparableError as reason:
        worth.notes.append(f"not compared with {now}, which serves: {reason}")
        return worth
    if followed is not None and described_template(description) is not None:
        own = {FIRST[LANGUAGE]: followed.nats}
        theirs = {name: each * followed.tokens_a_character for name, each in theirs.items()}
    mine = {name: losses[chosen] for name, losses in own.items()}
    verdicts = [clearly(mine[name], theirs[name]) for name in mine]
    if min(verdicts) < 0 and max(verdicts) <= 0:
        worth.refusals.append(
            f"it is worse than {now}, which serves, on {chosen.sum():,} held-out rows that are "
            f"new to both: {_beside(mine, theirs, now)}"
        )
    comparison = {
        "version": served.version,
        "rows": int(chosen.sum()),
        "served": _values(theirs),
        "model": _values(mine),
    }
    return replace(worth, served=comparison)


class NotComparableError(WorkloadError):
    """Two models can't be compared on the same rows, and why."""


@dataclass(frozen=True)
class Served:
    """The version that serves.

    Attributes:
        package: its package, opened with the keys.
        dataset: the snapshot that it was trained on; None where that is gone.
    """

    package: Package
    dataset: Dataset | None

    @property
    def version(self) -> int:
        """Return its number."""
        return self.package.version

    def losses(
        self, rows: Rows, description: Mapping[str, Any]
    ) -> tuple[Losses, NDArray[np.bool_]]:
        """Return its losses on the held-out rows that it hasn't learned from, and which these are.

        Of conversations they are nats of a token that the assistant says.

        Raises:
            NotComparableError: it predicts something else, takes other columns, or too few rows
                are new to it.
        """
        manifest = self.package.manifest
        if manifest["dataset"].get("target") != description["target"]:
            raise NotComparableError(f"it predicts {manifest['dataset'].get('target')!r}")
        pairs = described_pairs(description)
        if described_pairs(manifest["dataset"]) != pairs:
            raise NotComparableError("its tokens are others")
        template = described_template(description)
        if described_template(manifest["dataset"]) != template:
            raise NotComparableError("what it takes for a conversation is another thing")
        classes = description["classes"] if pairs is None else None
        if (manifest.get("task"), manifest.get("classes")) != (description["task"], classes):
            raise NotComparableError("it predicts other classes")
        names = [str(item["name"]) for item in manifest["inputs"]]
        for item in manifest["inputs"]:
            given = rows.inputs.get(item["name"])
            if given is None or (given.dtype == object) != (item["datatype"] == "BYTES"):
                raise NotComparableError(f"it takes the column {item['name']!r} in another form")
        if len(_answering(manifest["outputs"])) != 1:
            raise NotComparableError("it doesn't say which of its outputs is the answer")
        chosen = self._unseen(rows, names, description)
        if chosen.sum() < LEAST_ROWS:
            raise NotComparableError(
                f"{chosen.sum()} held-out rows are new to it; at least {LEAST_ROWS} are needed"
            )
        feed = {name: rows.inputs[name][chosen] for name in names}
        model = self.package.read("model.onnx")
        if template is not None and rows.wanted is not None:
            # What follows a conversation says nothing of its answers.
            return {FIRST[LANGUAGE]: _nats(model, feed[TOKENS], rows.wanted[chosen])}, chosen
        answers = answers_of(model, manifest["outputs"], feed)
        return losses_of(answers, rows.labels[chosen]), chosen

    def _unseen(
        self, rows: Rows, names: list[str], description: Mapping[str, Any]
    ) -> NDArray[np.bool_]:
        if self.package.manifest["dataset"].get("digest") == description["digest"]:
            return np.ones(len(rows.labels), dtype=np.bool_)
        if self.dataset is None:
            raise NotComparableError(
                "the rows that it learned from are gone, so that none can be told to be new to it"
            )
        seen = self.dataset.rows("train")
        learned = {name: self.dataset.inputs[name][seen] for name in names}
        known = set(_keys(learned, self.dataset.labels[seen], names))
        return np.array([key not in known for key in _keys(rows.inputs, rows.labels, names)])


def _nats(
    model: bytes, tokens: NDArray[np.int64], wanted: NDArray[np.int64]
) -> NDArray[np.float64]:
    parsed = onnx.ModelProto.FromString(model)
    if not layers_of([each.name for each in parsed.graph.input]):
        raise NotComparableError("it can't be told what came before")
    return nats_of(open_session(model), past_of(parsed), tokens, wanted)


def _keys(
    inputs: Mapping[str, NDArray[Any]], labels: NDArray[Any], names: list[str]
) -> list[tuple[Any, ...]]:
    """What makes a row itself: its columns and its label, as the served model takes them."""
    written: list[list[Any]] = []
    for name in names:
        values = inputs[name].reshape(len(labels), -1)
        if values.dtype == object:
            written.append([str(value) for value in values[:, 0]])
        else:
            plain = values.astype(np.float32)
            # One bit pattern of NaN.
            written.append([line.tobytes() for line in np.where(np.isnan(plain), np.nan, plain)])
    return list(zip(*written, labels.astype(np.float32).tolist(), strict=True))


def answers_of(
    model: bytes | Session, outputs: list[dict[str, Any]], inputs: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the probabilities or predictions of a served graph for rows of served inputs."""
    (answers,) = run_in_batches(session_of(model), dict(inputs), _answering(outputs))
    return answers


def _answering(outputs: list[dict[str, Any]]) -> list[str]:
    return [
        each["name"] for each in outputs if each.get("role") in ("probabilities", "prediction")
    ]


def open_served(path: Path, dataset: Path | None, keyring: KeyRing | None) -> Served:
    """Open the version that serves.

    Args:
        path: the folder of the version in the registry.
        dataset: the folder of the snapshot that it was trained on; None where it is gone.
        keyring: the keys of both.

    Raises:
        WorkloadError: there is no key ring, the package isn't what was published, or it was
            trained on another snapshot.
    """
    if keyring is None:
        raise WorkloadError("--served is a sealed package: name its key ring, too (--keyring)")
    manifest = read_json(path / MANIFEST, "the manifest of the version that serves")
    package = open_package(
        path, str(manifest["model"]), int(manifest["version"]), keyring, keyring.verify_key()
    )
    if dataset is None:
        return Served(package, None)
    opened = open_dataset(dataset, keyring)
    trained_on = package.manifest["dataset"].get("digest")
    if opened.digest != trained_on:
        raise WorkloadError(
            f"--served-dataset is {dataset}, of digest {opened.digest[:16]}, but version "
            f"{package.version} was trained on {str(trained_on)[:16]}: rows that it learned from "
            "would count as new to it. Name that snapshot, or leave the option away"
        )
    return Served(package, opened)
