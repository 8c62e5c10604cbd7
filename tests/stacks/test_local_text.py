"""A stack on one machine learns a text and continues others."""

from __future__ import annotations

import json
import random
import subprocess
from typing import Any

import pytest

from tests.stacks.conftest import Project

WORDS = ("قهوة", "شاي", "تمر", "coffee", "tea", "dates")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_text_is_learned_served_and_learned_again_when_it_grew(project: Project) -> None:
    def configure(**values: Any) -> None:
        project.configure(dataset=str(text), training={"epochs": 3, "width": 32}, **values)

    chosen = random.Random(3)
    text = project.home.parent / "orders.txt"
    text.write_text(" ".join(chosen.choice(WORDS) for _ in range(4_000)), encoding="utf-8")
    configure(batches={"all": {"inputs": [str(text)]}})
    refused = project.falaj("up")
    assert refused.returncode == 2
    assert "falaj:batches: given, but of a text a language model is learned" in refused.stdout

    configure()
    said = project.up()
    call = said.partition("Call it with curl:\n")[2].partition("\n\n")[0]
    assert "/v1/completions" in call
    # Not by make, as it is printed in a clone: it would install the copy into this environment.
    token = project.falaj("token").stdout
    done = subprocess.run(
        ["sh", "-c", call.partition("|")[2]], input=token, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert (answer["model"], answer["usage"]["completion_tokens"]) == ("orders", 64)
    # What was learned are words of these letters and single blanks.
    assert set(answer["choices"][0]["text"]) <= set("".join(WORDS)) | {" "}

    shown = project.pulumi("stack", "output", "--json", "-s", project.stack)
    evaluation = json.loads(shown.stdout)["evaluation"]
    assert evaluation["metric"] == "nats_per_character"
    assert 0 < evaluation["float"]["metric"] < 3

    demo = project.falaj("demo")
    assert demo.returncode == 0, demo.stdout
    assert "held-out windows, through the endpoint" in demo.stdout
    predicted = project.falaj("predict", str(text))
    assert predicted.returncode == 2
    assert "orders is a language model" in predicted.stdout

    with text.open("a", encoding="utf-8") as file:
        file.write(" ".join(chosen.choice(WORDS) for _ in range(4_000)))
    again = project.up()
    assert "Serving orders version 2 at " in again
    assert "against version 1" in again
    project.down()
