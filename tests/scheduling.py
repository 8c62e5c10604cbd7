"""Which worker runs which tests, and in which order, so that no core waits for the last file."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

CLUSTER: Final = PurePosixPath("tests/cluster")
REAL: Final = CLUSTER / "real"
BARE: Final = "real machines"
PLATFORM: Final = "a platform on real machines"
"""The tests on real machines: of each the same ones, in the order of their files."""
WITHOUT_A_PLATFORM: Final = ("test_machines.py", "test_networks.py")
RESIDENCY: Final = "tests/cluster residency"
DECLARED: Final = "tests/stacks declared"
EXPORTED: Final = "tests/workloads/inference exported"
TOGETHER: Final[Mapping[str, str]] = {
    "tests/cluster/test_admission_attacks.py": RESIDENCY,
    "tests/cluster/test_admission_parity.py": RESIDENCY,
    "tests/cluster/test_forbidden.py": RESIDENCY,
    "tests/stacks/costs/test_costs.py": DECLARED,
    "tests/stacks/costs/test_prices.py": DECLARED,
    "tests/stacks/costs/test_tables.py": DECLARED,
    "tests/stacks/drawing/test_draw_command.py": DECLARED,
    "tests/stacks/drawing/test_drawing.py": DECLARED,
    "tests/stacks/drawing/test_pictures.py": DECLARED,
    "tests/stacks/test_preview_page.py": DECLARED,
    "tests/workloads/inference/test_cache.py": EXPORTED,
    "tests/workloads/inference/test_cache_served.py": EXPORTED,
    "tests/workloads/inference/test_likelihoods.py": EXPORTED,
    "tests/workloads/inference/test_prefixes.py": EXPORTED,
}
"""Files that one worker runs: they share a control plane of their own, every shipped stack's
resources in each form (`tests.stacks.states.states`), or language models, whose export takes six
seconds each (`tests.workloads.inference.decoders.published`)."""
PLANES: Final = 2
"""Workers with control planes beside real machines, whose tests miss their times where cores are
rare: each keeps one to its end, some tests start another."""
PLANES_ALONE: Final = 3
"""The same once no test with real machines is left: simulated ones leave cores idle."""
LONGEST: Final = (
    PLATFORM,
    BARE,
    "tests/cluster/test_platform_life.py",
    "tests/newcomer/test_one_machine.py",
    "tests/newcomer/test_in_the_sandbox.py",
    "tests/newcomer/test_wheel.py",
    "tests/stacks/test_local_stack.py",
    "tests/stacks/test_aws_stacks.py",
    "tests/stacks/test_azure_stacks.py",
    "tests/newcomer/test_checks_and_evidence.py",
    "tests/stacks/test_check.py",
    "tests/stacks/test_every_setting.py",
    "tests/workloads/training/test_divided.py",
    "tests/components/kubernetes/test_workspace_runs.py",
    DECLARED,
)
"""What takes minutes, the longest first: else one worker has it left when others are done."""


@cache
def unit(file: str) -> str:
    """What a file's tests are run with by one worker: its own name, where they are alone."""
    path = PurePosixPath(file)
    if path.is_relative_to(REAL):
        return BARE if path.name in WITHOUT_A_PLATFORM else PLATFORM
    return TOGETHER.get(file, file)


def needs_a_plane(name: str) -> bool:
    """Whether a unit's tests have a control plane."""
    return name in (PLATFORM, BARE, RESIDENCY) or name.startswith(f"{CLUSTER}/")


def rank(name: str) -> int:
    """The place of a unit among those that take long; the others' are the last."""
    return LONGEST.index(name) if name in LONGEST else len(LONGEST)


class Schedule(LoadFileScheduling):
    """A file's tests to one worker, and those of the cluster to few at a time.

    Workers that may have a control plane take what needs one first, and the others the rest. Who
    may have none yet and has nothing else waits until the real machines are gone.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit(super()._split_scope(nodeid))

    def _has_real_machines(self) -> bool:
        """Whether a test with real machines runs or is still to be run."""
        return any(
            name in (PLATFORM, BARE) and not all(tests.values())
            for units in (self.workqueue, *self.assigned_work.values())
            for name, tests in units.items()
        )

    def _next(self, node: WorkerController) -> str | None:
        """The unit that a worker runs next, or None where what is left is for others."""
        with_planes = [
            each for each, units in self.assigned_work.items() if any(map(needs_a_plane, units))
        ]
        most = PLANES if self._has_real_machines() else PLANES_ALONE
        if node in with_planes or len(with_planes) < most:
            return next(filter(needs_a_plane, self.workqueue), next(iter(self.workqueue), None))
        return next((each for each in self.workqueue if not needs_a_plane(each)), None)

    def _assign_work_unit(self, node: WorkerController) -> None:
        chosen = self._next(node)
        if chosen is not None:
            self.workqueue.move_to_end(chosen, last=False)
            super()._assign_work_unit(node)
        elif not self._has_real_machines():
            node.shutdown()

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        before = self._has_real_machines()
        super().mark_test_complete(node, item_index, duration)
        if before and not self._has_real_machines():
            # Twice: a worker runs a test when it knows the one after it, and units may have one.
            for each in (*self.nodes, *self.nodes):
                self._reschedule(each)


def schedule(config: pytest.Config, log: Producer) -> Schedule | None:
    """The schedule of a run with ``--dist loadfile``; of others, xdist's own."""
    return Schedule(config, log) if config.getvalue("dist") == "loadfile" else None
