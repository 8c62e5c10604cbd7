"""Sections that are made from a component's arguments."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pytest
from pydantic import ValidationError

from falaj.stacks.settings.derived import section_of
from falaj.stacks.settings.error_messages import refused
from falaj.stacks.settings.problems import key_of


class Rack(TypedDict):
    """Where machines stand."""

    power_kw: float
    label: NotRequired[str]


class Arguments(TypedDict):
    """What a component takes."""

    tenant: str
    gpu_count: int
    key_id: pulumi.Input[str]
    racks: NotRequired[list[Rack]]
    by_name: NotRequired[dict[str, Rack]]
    switches: NotRequired[dict[str, bool | dict[str, Any]]]
    labels: NotRequired[pulumi.Input[dict[str, pulumi.Input[str]]]]


SECTION = section_of(Arguments, "Arguments", leaving_out={"tenant"})
LEAST = {"gpuCount": 8, "keyId": "key"}


def test_a_section_gives_the_components_spelling_back() -> None:
    given = {
        **LEAST,
        "racks": [{"powerKw": 40}],
        "byName": {"leftRack": {"powerKw": 1.5, "label": "a"}},
        "switches": {"kServe": False, "kueue": {"fairSharing": True}},
        "labels": {"Kept-As_is": "x"},
    }
    found = SECTION.model_validate(given)
    assert found.model_dump(exclude_none=True) == {
        "gpu_count": 8,
        "key_id": "key",
        "racks": [{"power_kw": 40.0}],
        "by_name": {"leftRack": {"power_kw": 1.5, "label": "a"}},
        "switches": {"kServe": False, "kueue": {"fairSharing": True}},
        "labels": {"Kept-As_is": "x"},
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"keyId": "key"}, "falaj:gpuCount: missing"),
        ({**LEAST, "tenant": "acme"}, "falaj:tenant: unknown key"),
        ({**LEAST, "gpuCout": 3}, "falaj:gpuCout: unknown key; did you mean gpuCount?"),
        ({**LEAST, "gpuCount": True}, "falaj:gpuCount: given true; allowed: a whole number"),
        ({**LEAST, "gpuCount": "many"}, "falaj:gpuCount: given 'many'; allowed: a whole number"),
        ({**LEAST, "keyId": {"a": 1}}, "falaj:keyId: given {a: 1}; allowed: text"),
        (
            {**LEAST, "racks": [{"powerKW": 1}]},
            "falaj:racks[0].powerKW: unknown key; did you mean",
        ),
        ({**LEAST, "byName": {"a": {}}}, "falaj:byName.a.powerKw: missing"),
        ({**LEAST, "labels": {"a": ["b"]}}, "falaj:labels"),
    ],
)
def test_what_the_component_does_not_know_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SECTION.model_validate(given)
    findings = refused(caught.value, SECTION, given)
    assert said in "\n".join(f"{key_of(each.path)}: {each.message}" for each in findings)
