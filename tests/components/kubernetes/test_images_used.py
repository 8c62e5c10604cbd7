"""Who brings the images of one component brings all that its pods name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.bill_of_materials import images
from tests.components.kubernetes import (
    test_batch_inference,
    test_federated_training,
    test_pipeline,
    test_sweep,
    training_jobs,
)
from tests.components.kubernetes.test_federated_training import SITE
from tests.components.kubernetes.training_jobs import DIGEST, HOROVOD, LAUNCHER_DIGEST

KEYS = {"key_secret": "acme/training-keys"}
INFERENCE = {"falaj-inference": LAUNCHER_DIGEST}
CPU_ALONE = {"flavor": "cpu-x86-64"}


def _own(render: Callable[..., list[Manifest]], **more: object) -> list[Manifest]:
    """With an image of the team's own, beside which Falaj's lays out the key ring."""
    return render(image=f"team/train@{DIGEST}", images=INFERENCE, **KEYS, **more)


@pytest.mark.parametrize(
    ("component", "rendered"),
    [
        ("training-job", training_jobs.job),
        ("training-job", lambda: training_jobs.job(**CPU_ALONE)),
        ("training-job", lambda: training_jobs.job(**HOROVOD)),
        ("sweep", test_sweep.rendered),
        ("sweep", lambda: test_sweep.rendered(**CPU_ALONE)),
        ("sweep", lambda: _own(test_sweep.rendered)),
        ("federated-training", lambda: test_federated_training.rendered(**SITE)),
        ("federated-training", lambda: _own(test_federated_training.rendered, **SITE)),
        ("batch-inference", test_batch_inference.rendered),
        ("pipeline", test_pipeline.rendered),
    ],
)
def test_its_entry_in_the_bill_of_materials_names_the_component(
    component: str, rendered: Callable[[], list[Manifest]]
) -> None:
    ours = {each.mirror: name for name, each in images().items()}
    used = {ours[each] for each in re.findall(r"/(falaj/[a-z-]+):", json.dumps(rendered()))}
    assert used
    lacking = {each for each in used if component not in images()[each].used_by}
    assert lacking == set(), f"`falaj images mirror --used-by {component}` would leave them out"
