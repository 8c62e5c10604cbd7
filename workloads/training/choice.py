"""Which model of a table is kept, and how probabilities are made to fit the rows.

Of a table a linear model, a network and trees are compared, by cross-validation where there are
few rows, else on the validation rows; what is kept is calibrated on the same answers. Networks of
images, and models of a team's own, are calibrated on the validation rows. None of these models
learned from the rows that it is judged by and calibrated on, and the held-out rows aren't looked
at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.training import folds, linear, optimisers, race, trees
from falaj.workloads.training.batches import PreparedData, features, prepare
from falaj.workloads.training.image_networks import ImageNetwork
from falaj.workloads.training.loop import PREDICTED_ROWS, predict
from falaj.workloads.training.models import ConvolutionalNetwork, TableNetwork, Tempered
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.tensors import backward, numbers_of, tensor_of
from falaj.workloads.training.trees import TableTrees

#: How far from 1 and 0 scale (its logarithm) and shifts lie beforehand: few rows move them little.
_SCALE_DEVIATION: Final = 0.5
_SHIFT_DEVIATION: Final = 1.0
_STEPS: Final = 100

CHEAPEST_FIRST: Final = (linear.NAME, "network", "trees")
"""Models of a table, by how many numbers a row's answer takes."""

_NAMES: Final = {linear.NAME: "the linear model", "network": "the network", "trees": "trees"}

_TableModel = linear.TableLinear | TableNetwork | TableTrees


@dataclass(frozen=True)
class Choice:
    """What is kept of a run.

    Attributes:
        prepared: the rows, with the architecture of what is kept.
        module: it, on the CPU.
        figures: ``kept`` (``linear``, ``network``, ``trees``, the name of a light network of
            images, or ``own`` of a team's own). Of a table of which several were compared
            ``judged``, as `pick` has it, and with the ``losses`` of one that left the race the
            ``chance`` that it would have been kept. Where something was calibrated ``factor``,
            ``shift`` of a table's, and ``calibration``: ``rows``, ``before`` and ``after`` (log
            loss on them).
    """

    prepared: PreparedData
    module: nn.Module
    figures: dict[str, Any]


def choose(
    dataset: Dataset,
    prepared: PreparedData,
    network: nn.Module,
    parameters: Parameters,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    device: torch.device | None = None,
) -> Choice:
    """Return what is kept, calibrated.

    Args:
        dataset: the rows.
        prepared: the same, prepared.
        network: trained; it is calibrated in its place.
        parameters: the run's.
        is_stopped: whether to stop. Default: never.
        device: that networks of folds learn on. Default: the CPU.

    Raises:
        folds.Stopped: it was asked to while networks of folds were learning.
    """
    network = network.cpu().eval()
    if isinstance(network, TableNetwork):
        judge = _Judge(
            dataset, prepared, parameters, is_stopped, device or torch.device("cpu")
        )  # fmt: skip
        return judge.choose(network)
    kept = "own" if parameters.own is not None else prepared.architecture.network or "network"
    figures: dict[str, Any] = {"kept": kept}
    is_network = isinstance(network, ConvolutionalNetwork | ImageNetwork)
    if dataset.task != "classification" or not (is_network or parameters.own is not None):
        return Choice(prepared, network, figures)
    features, labels, _ = (tensor.cpu() for tensor in prepared.validation)
    rows = parameters.batch_size if parameters.may_normalise else PREDICTED_ROWS
    logits = predict(network, features, rows).float()
    factor, _ = calibration(logits, labels, shifted=False)
    figures |= {"factor": factor, "calibration": _improvement(logits, labels, factor)}
    if is_network:
        network.rescale(factor)
    else:
        network = Tempered(network, factor).eval()
        architecture = replace(prepared.architecture, factor=factor)
        prepared = replace(prepared, architecture=architecture)
    return Choice(prepared, network, figures)


@dataclass(frozen=True)
class _Answers:
    """Answers of each model for rows that it didn't learn from.

    Attributes:
        outputs: by model, (rows, outputs); of one that left the race, for the first rows alone.
        labels: (rows,).
        fold: of each row, (rows,).
        chances: that each of those that left would have been kept.
    """

    outputs: dict[str, Tensor]
    labels: Tensor
    fold: Tensor
    chances: dict[str, float] = field(default_factory=dict[str, float])


class _Judge:
    """Compares the models of a table."""

    def __init__(
        self,
        dataset: Dataset,
        prepared: PreparedData,
        parameters: Parameters,
        is_stopped: Callable[[], bool],
        device: torch.device,
    ) -> None:
        self._dataset, self._prepared, self._parameters = dataset, prepared, parameters
        self._is_stopped, self._device = is_stopped, device
        self._classes = None if prepared.target_scale else prepared.architecture.outputs

    def choose(self, network: TableNetwork) -> Choice:
        """Return which model is kept, calibrated."""
        names = self._names()
        rows = len(self._prepared.fit_weights) + len(self._prepared.validation[1])
        count = folds.count(rows) if len(names) > 1 else 0
        made: dict[str, _TableModel] = {"network": network}
        if count:
            found = self._of_folds(names, count)
        else:
            others = [name for name in names if name not in made]
            made |= {name: self._learned(name, self._prepared) for name in others}
            features, labels, _ = self._prepared.validation
            outputs = {name: predict(made[name], features).float() for name in names}
            found = _Answers(outputs, labels, torch.zeros(len(labels), dtype=torch.int64))
        fitted, losses = self._calibrated(found.outputs, found.labels)
        judged = pick(losses, found.fold)
        for name, chance in found.chances.items():
            judged["losses"][name]["chance"] = chance
        kept = judged["kept"]
        figures: dict[str, Any] = {"kept": kept}
        if len(names) > 1:
            figures["judged"] = {"figure": self._figure, **judged}
        module = made.get(kept) or self._learned(kept, self._prepared, all_rows=True)
        if self._classes is not None:
            factor, shift = fitted[kept]
            module.rescale(factor, shift)
            figures |= {
                "factor": factor, "shift": numbers_of(shift),
                "calibration": _improvement(found.outputs[kept], found.labels, factor, shift),
            }  # fmt: skip
        return Choice(self._as(module), module, figures)

    @property
    def _figure(self) -> str:
        return "squared error of the standardised target" if self._classes is None else "log loss"

    def _names(self) -> tuple[str, ...]:
        """The models that are compared."""
        if self._parameters.model != "auto" or len(self._prepared.fit_weights) > trees.MOST_ROWS:
            return ("network",)
        is_few = (self._classes or 1) <= trees.MOST_CLASSES
        return CHEAPEST_FIRST if is_few else CHEAPEST_FIRST[:-1]

    def _of_folds(self, names: tuple[str, ...], count: int) -> _Answers:
        """Have each model that may be kept answer for each fold, learned from the others."""
        cut = list(folds.split(self._dataset, count, self._parameters.seed))
        total = sum(len(judged) for judged, _ in cut)
        racing, chances = names, dict[str, float]()
        outputs: dict[str, list[Tensor]] = {name: [] for name in names}
        labels: list[Tensor] = []
        numbers: list[Tensor] = []
        for number, (judged, part) in enumerate(cut):
            # The answers of classes are needed to calibrate on: of fewer, log losses are higher.
            if len(racing) == 1 and self._classes is None:
                break
            prepared = prepare(part, self._parameters)
            asked = features(part, "held_out", prepared.preprocessing)
            for name in racing:
                answers = predict(self._learned(name, prepared), asked).float()
                outputs[name].append(self._in_whole_scale(answers, prepared))
            labels.append(self._targets(part.labels[part.rows("held_out")]))
            numbers.append(torch.full((len(judged),), number))
            asked_of = {name: torch.cat(outputs[name]) for name in racing}
            chances |= race.dropped(self._calibrated(asked_of, torch.cat(labels))[1], total)
            racing = tuple(name for name in racing if name not in chances)
        every = {name: torch.cat(each) for name, each in outputs.items()}
        return _Answers(every, torch.cat(labels), torch.cat(numbers), chances)

    def _calibrated(
        self, outputs: Mapping[str, Tensor], labels: Tensor
    ) -> tuple[dict[str, tuple[float, Tensor]], dict[str, Tensor]]:
        """Each model's factor and shift, and the losses of its answers for the first rows."""
        fitted = {name: self._fitted(each, labels[: len(each)]) for name, each in outputs.items()}
        losses = {
            name: self._losses(each, labels[: len(each)], fitted[name])
            for name, each in outputs.items()
        }
        return fitted, losses

    def _in_whole_scale(self, answers: Tensor, prepared: PreparedData) -> Tensor:
        """Standardised values of a fold, as the whole training part's would be."""
        own, whole = prepared.target_scale, self._prepared.target_scale
        if own is None or whole is None:
            return answers
        return (answers * own["scale"] + own["mean"] - whole["mean"]) / whole["scale"]

    def _targets(self, labels: Any) -> Tensor:
        whole = self._prepared.target_scale
        if whole is None:
            return tensor_of(np.array(labels, dtype=np.int64))
        standard = (labels.astype(np.float64) - whole["mean"]) / whole["scale"]
        return tensor_of(standard.astype(np.float32))

    def _learned(
        self, name: str, prepared: PreparedData, *, all_rows: bool = False
    ) -> _TableModel:
        """A model that learned from the fit rows; of all training rows where that needs no judge.

        Args:
            name: of the model.
            prepared: the rows.
            all_rows: whether the validation rows are learned from by what isn't stopped by them.
        """
        parameters = self._parameters
        if name == "network":
            made = folds.learn_network(
                prepared, parameters, self._dataset.task, self._device, self._is_stopped
            )
            return cast("TableNetwork", made)
        if self._is_stopped():
            raise folds.Stopped
        fit, weights = prepared.fit, prepared.fit_weights
        if name == linear.NAME:
            if all_rows:
                more = prepared.validation
                fit = (torch.cat([fit[0], more[0]]), torch.cat([fit[1], more[1]]))
                weights = np.concatenate([weights, more[2].numpy()])
            return linear.fit_linear(
                fit, weights, classes=self._classes, threads=parameters.threads
            )
        forest, _ = trees.grow(
            fit, weights, prepared.validation[:2], classes=self._classes, seed=parameters.seed,
            threads=parameters.threads,
        )  # fmt: skip
        return TableTrees.of(forest).eval()

    def _fitted(self, outputs: Tensor, labels: Tensor) -> tuple[float, Tensor]:
        """Factor and shift of a calibration; of a number there is none."""
        if self._classes is None or not bool(outputs.isfinite().all()):
            return 1.0, torch.zeros(outputs.shape[1])
        return calibration(outputs, labels)

    def _losses(self, outputs: Tensor, labels: Tensor, fitted: tuple[float, Tensor]) -> Tensor:
        """Each row's loss, of calibrated answers."""
        if self._classes is None:
            return (outputs.squeeze(1) - labels).double() ** 2
        factor, shift = fitted
        logits = factor * outputs.double() + shift.double()
        return functional.cross_entropy(logits, labels, reduction="none")

    def _as(self, module: _TableModel) -> PreparedData:
        """The rows, with the architecture of a module."""
        architecture = self._prepared.architecture
        if isinstance(module, TableTrees):
            count, nodes = module.forest().feature.shape
            architecture = replace(architecture, trees=count, nodes=nodes)
        elif isinstance(module, linear.TableLinear):
            architecture = replace(architecture, network=linear.NAME)
        return replace(self._prepared, architecture=architecture)


def pick(losses: Mapping[str, Tensor], fold: Tensor) -> dict[str, Any]:
    """Return which model is kept: of those that are as good as the best, the cheapest.

    One is as good if its loss is above that of the best by no more than one standard error of the
    mean difference, row by row: the rule of one standard error of Breiman, Friedman, Olshen and
    Stone, 1984, for pairs. One whose answers are no numbers is left out, unless all of them are.
    One without a loss of each row, as it left the race, isn't kept.

    Args:
        losses: each row's loss (rows,) by model, the cheapest first; of one that left the race,
            those of the first rows.
        fold: of each row, (rows,).

    Returns:
        ``kept``; ``best``; ``folds`` and ``rows``; ``losses``: of each model ``mean``, ``folds``
        (the mean of each) and ``spread`` (the standard deviation of these; None of one fold);
        ``difference`` of what is kept to the best, or where it is that, to the next one, on the
        rows of both, and its ``standard_error``; and ``reason``, in words.
    """
    known = {name: each for name, each in losses.items() if bool(each.isfinite().all())} or losses
    most = max(map(len, known.values()))
    means = {name: float(each.mean()) for name, each in known.items() if len(each) == most}
    best = min(means, key=lambda name: means[name])

    def gap(one: str, other: str) -> tuple[float, float]:
        rows = min(len(known[one]), len(known[other]))
        differences = (known[one][:rows] - known[other][:rows]).numpy()
        deviation = float(differences.std(ddof=1)) if len(differences) > 1 else math.inf
        return float(differences.mean()), deviation / math.sqrt(len(differences))

    def is_as_good(name: str) -> bool:
        difference, error = gap(name, best)
        return name == best or difference <= error

    kept = next(filter(is_as_good, means))
    others = sorted((each for each in known if each != best), key=lambda name: gap(name, best)[0])
    # One that left the race says less than one that has answered for all rows.
    others.sort(key=lambda name: name not in means)
    beside = best if kept != best else next(iter(others), best)
    difference, error = gap(kept, beside)
    reason = "nothing else could be compared"
    if kept != best:
        reason = (
            f"{_NAMES[kept]}: cheaper, and its loss is only {difference:.4g} above that of "
            f"{_NAMES[best]}, within one standard error ({error:.2g})"
        )
    elif others:
        reason = (
            f"{_NAMES[kept]}: the lowest loss, {-difference:.4g} below that of {_NAMES[beside]} "
            f"(one standard error: {error:.2g})"
        )
    return {
        "kept": kept, "best": best, "folds": len(set(numbers_of(fold))), "rows": len(fold),
        "losses": {name: _spread(each, fold[: len(each)]) for name, each in known.items()},
        "difference": difference, "standard_error": error, "reason": reason,
    }  # fmt: skip


def _spread(losses: Tensor, fold: Tensor) -> dict[str, Any]:
    means = [float(losses[fold == each].mean()) for each in sorted(set(numbers_of(fold)))]
    return {
        "mean": float(losses.mean()),
        "folds": means,
        "spread": float(np.std(means, ddof=1)) if len(means) > 1 else None,
    }


def calibration(logits: Tensor, labels: Tensor, *, shifted: bool = True) -> tuple[float, Tensor]:
    """Return the factor and the shifts (classes,) with which logits fit the rows best.

    Temperature scaling with a bias (vector scaling of one temperature; Guo, Pleiss, Sun,
    Weinberger, 2017, https://arxiv.org/abs/1706.04599), held near "no change" by normal priors.

    Args:
        logits: of rows that weren't learned from, (rows, classes).
        labels: their classes, (rows,).
        shifted: whether there are shifts. Without, the likeliest class of each row stays the same,
            and shifts are 0. Default: there are.
    """
    given = logits.detach().double()
    logarithm = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(given.shape[1], dtype=torch.float64, requires_grad=shifted)
    optimiser = optimisers.LBFGS(
        [logarithm, shift] if shifted else [logarithm],
        max_iter=_STEPS, line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = functional.cross_entropy(logarithm.exp() * given + shift, labels, reduction="sum")
        total = total + (logarithm / _SCALE_DEVIATION) ** 2 / 2
        total = total + ((shift / _SHIFT_DEVIATION) ** 2).sum() / 2
        backward(total)
        return total

    cast("Any", optimiser).step(loss)
    return float(logarithm.detach().exp()), shift.detach().float()


def _improvement(
    logits: Tensor, labels: Tensor, factor: float, shift: Tensor | float = 0.0
) -> dict[str, Any]:
    """What a calibration does to the log loss of the rows that it is found on."""
    given = logits.double()
    before, after = (
        float(functional.cross_entropy(each, labels)) for each in (given, factor * given + shift)
    )
    return {"rows": len(labels), "before": before, "after": after}
