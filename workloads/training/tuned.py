"""Settings of a run that are measured where it runs: told, or taken for the run that follows."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from falaj.workloads.errors import STOPPED, WorkloadError
from falaj.workloads.processor import cores
from falaj.workloads.training import distributed, hardware, tuning
from falaj.workloads.training.layout import layout
from falaj.workloads.training.measurer import Measurer, machine
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.snapshot import Dataset, make_folder
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tuning import Outcome, RefusedError, Space, StoppedError


class Tuner:
    """Measures settings of one run.

    Args:
        options: the parsed command line, of ``run`` or ``tune``.
        stop: says when to stop.
        arguments: the command line, for the process that measures.
        fixed: names of settings that were given, and stay.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        stop: StopRequest,
        arguments: list[str],
        fixed: frozenset[str],
    ) -> None:
        self._options, self._stop = options, stop
        self._arguments, self._fixed = arguments, fixed

    @property
    def is_asked(self) -> bool:
        """Return whether a run is to measure before it begins."""
        return bool(self._options.tune)

    def found(self, *, resume: bool) -> dict[str, Any] | None:
        """Return what was measured for the run in its folder; None: nothing was.

        A run that goes on keeps what it began with, so that it ends in the same model, and all
        processes of a run have what the one found that started them.

        Raises:
            WorkloadError: it is to be measured, and another program has started the processes.
        """
        is_tuned = self.is_asked and distributed.is_member()
        if not resume and not is_tuned:
            return None
        found = tuning.read(self._options.output / tuning.FILE)
        if is_tuned and found is None and not resume:
            raise WorkloadError(
                "--tune measures before processes are started, and a launcher has started this "
                "one: measure on this machine (`python -m falaj.workloads.training tune` with "
                "the same options), and give what it proposes as options"
            )
        return found

    def refuse_meeting(self) -> None:
        """Refuse to measure where several machines train together.

        Raises:
            WorkloadError: that is asked for; says what to do.
        """
        if self.is_asked:
            raise WorkloadError(
                "--tune measures on one machine, and here several train together: measure on one "
                "of them (`python -m falaj.workloads.training tune` with the same options), and "
                "give what it proposes as options"
            )

    def take(self, parameters: Parameters, dataset: Dataset) -> tuple[dict[str, Any], str]:
        """Measure, or find what was measured for the same before, and note it in the run's folder.

        Returns:
            What was tried and taken, and the same in words.

        Raises:
            StoppedError: somebody asked to stop.
            WorkloadError: the model is divided among processes.
        """
        check(parameters)
        key = tuning.key_of(dataset.digest, parameters, self._fixed, machine(parameters.device))
        folder: Path | None = self._options.measured
        kept = None
        if folder is not None:
            make_folder(folder)
            kept = tuning.read(folder / f"{key}.json")
        if kept is None or kept.get("key") != key:
            kept = None
        found = kept or self._measured(parameters, dataset, key)
        # More time may find what this one didn't.
        is_known = bool(found["taken"]) or not found.get("open", 1)
        if folder is not None and kept is None and is_known:
            tuning.write(folder / f"{key}.json", found)
        tuning.write(self._options.output / tuning.FILE, found)
        return found, _words(found, is_kept=kept is not None)

    def taken(self, found: Mapping[str, Any]) -> dict[str, int]:
        """Return the settings that a run has of what was found: what is given counts more."""
        return {name: each for name, each in found["taken"].items() if name not in self._fixed}

    def tell(self, parameters: Parameters, dataset: Dataset) -> int:
        """Measure, and print what came of it; return the exit status.

        Raises:
            WorkloadError: what the run has can't be measured, or not here.
        """
        check(parameters)
        options = self._options
        space = self._space(parameters, dataset)
        if options.change_precision and "precision" not in self._fixed:
            others = hardware.precisions(parameters.device)
            space = replace(
                space, precisions=tuple(each for each in others if each != parameters.precision)
            )
        try:
            outcome = self._search(parameters, replace(space, change_batch=options.change_batch))
        except StoppedError:
            print("stopped; nothing was kept", file=sys.stderr)
            return STOPPED
        except RefusedError as error:
            raise WorkloadError(
                f"what the run has can't be measured: {error}; where it was time that was short, "
                "give more (--tune-seconds)"
            ) from error
        found = outcome.to_json()
        if options.json:
            print(json.dumps(found))
        else:
            print(f"{tuning.table(found['tried'])}\n{_advice(outcome)}")
        return 0

    def _measured(self, parameters: Parameters, dataset: Dataset, key: str) -> dict[str, Any]:
        named = {"format": tuning.FORMAT, "key": key}
        try:
            outcome = self._search(parameters, self._space(parameters, dataset))
        except RefusedError as error:  # no reason not to train
            return {**named, "taken": {}, "refused": str(error)}
        return {**named, **outcome.to_json()}

    def _search(self, parameters: Parameters, space: Space) -> Outcome:
        measurer = Measurer(self._arguments, parameters, self._stop.asked)
        try:
            measurer.start()
            return tuning.search(
                tuning.candidate_of(parameters), space, measurer.measure,
                seconds=self._options.tune_seconds, clock=time.monotonic,
            )  # fmt: skip
        finally:
            measurer.close()

    def _space(self, parameters: Parameters, dataset: Dataset) -> Space:
        is_on_gpu = parameters.device == "cuda"
        return Space(
            cores=cores(),
            places=hardware.gpus() if is_on_gpu else cores(),
            fixed=self._fixed,
            rows=int(dataset.description["rows"]["train"]),
            # Where gradients travel in another form, one process learns otherwise than two.
            is_steady=not parameters.may_normalise and parameters.compression == "none",
            is_streamed=dataset.stream is not None,
        )


def check(parameters: Parameters) -> None:
    """Refuse what isn't measured.

    Raises:
        WorkloadError: the model is divided among processes.
    """
    divided = layout(parameters)
    if divided.is_divided:
        raise WorkloadError(
            "settings are measured of models that each process has whole, and here the model is "
            f"divided ({divided}): leave --tune out"
        )


def _words(found: Mapping[str, Any], *, is_kept: bool) -> str:
    if "refused" in found:
        return f"settings stay as they are, as they can't be measured: {found['refused']}"
    begun = "as measured before" if is_kept else f"measured in {found['seconds']:.0f} s"
    words = ", ".join(f"{name} {each}" for name, each in found["taken"].items())
    if not words:
        rest = f"; there was too little time for {found['open']} of them" if found["open"] else ""
        return f"{begun}: nothing is better than what the run has{rest}"
    return f"{begun}: {words} ({100 * (found['gain'] - 1):+.0f} % rows a second)"


def _advice(outcome: Outcome) -> str:
    settings = outcome.settings
    if not settings:
        still = sum(each.is_open for each in outcome.tried)
        rest = f"; there was too little time for {still} others (--tune-seconds)" if still else ""
        return f"what the run has is best of what was measured{rest}"
    lines = [f"{100 * (outcome.gain - 1):+.0f} % rows a second with"]
    for name, value in settings.items():
        first, *rest = name.split("_")
        key = first + "".join(each.title() for each in rest)
        option = name.replace("_", "-")
        lines.append(f"  falaj:training.{key}: {value}   (--{option} {value})")
    if others := [name.replace("_", " ") for name in settings if name not in tuning.TAKEN]:
        lines.append(
            f"another {' and '.join(others)} is another training: compare what both models are "
            "worth before you take it"
        )
    return "\n".join(lines)
