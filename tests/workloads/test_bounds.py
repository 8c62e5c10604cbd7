"""The bounds of options: stated by the workloads, and the same for whoever calls them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.fields import Table, check
from falaj.components.local.provider.resources.batch_inference import BatchInferenceHandler
from falaj.components.local.provider.resources.dataset import DatasetHandler
from falaj.components.local.provider.resources.inference_service import InferenceServiceHandler
from falaj.components.local.provider.resources.model_package import ModelPackageHandler
from falaj.components.local.provider.resources.training_run import TrainingRunHandler
from falaj.components.specification import workload_bounds
from falaj.components.specification.limits import DATA_CLASS, Between, OneOf
from falaj.components.specification.property_names import camel
from falaj.stacks.settings.local import (
    BatchSettings,
    OptimizationSettings,
    ServiceSettings,
    SplitSettings,
    TrainingSettings,
)
from falaj.stacks.settings.section import Section
from falaj.workloads import bounds
from falaj.workloads.bounds import Bound, Choice, Form
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.options import Requested

FILE = Path(workload_bounds.__file__).with_suffix(".json")
PLACES: list[tuple[str, dict[str, Bound], Table, type[Section]]] = [
    ("dataset", bounds.DATASET, DatasetHandler.table, SplitSettings),
    ("training", bounds.TRAINING, TrainingRunHandler.table, TrainingSettings),
    ("optimization", bounds.OPTIMIZATION, ModelPackageHandler.table, OptimizationSettings),
    ("service", bounds.SERVICE, InferenceServiceHandler.table, ServiceSettings),
    ("batch", {"threads": bounds.BATCH["threads"]}, BatchInferenceHandler.table, BatchSettings),
]


def test_the_file_is_what_the_workloads_say() -> None:
    assert FILE.read_text() == bounds.document(), (
        "write it again: python -m falaj.workloads.bounds > "
        "components/specification/workload_bounds.json"
    )


def test_every_number_of_a_training_has_a_bound() -> None:
    texts = set(bounds.CHOICES["training"])
    # Folders, what a model of a team's own is made with, and what is or isn't.
    own = {"code", "options", "teacher", "quantisation_aware", "start"}
    assert {field.name for field in fields(Requested)} - own == texts | set(bounds.TRAINING)


@pytest.mark.parametrize(
    ("bound", "allowed", "refused"),
    [
        (Bound(1, 3), [1, 3], [0, 4, 1.0, True, "2", None]),
        (Bound(0, 1, whole=False), [0, 0.5, 1], [-0.1, 1.1, float("nan"), float("inf"), False]),
    ],
)
def test_bounds(bound: Bound, allowed: list[object], refused: list[object]) -> None:
    assert all(bound.allows(each) for each in allowed)
    assert not any(bound.allows(each) for each in refused)


def test_all_that_an_option_may_be_refuses_in_the_same_words() -> None:
    for allowance, wrong in [
        (Bound(1, 3), 4),
        (Choice(("a", "b"), "a"), "c"),
        (Form("[a-z]{1,3}", "1 to 3 small letters", "abc"), "ABC"),
    ]:
        with pytest.raises(WorkloadError) as refused:
            allowance.check("--of", wrong)
        assert str(refused.value) == f"--of is {wrong!r}: allowed is {allowance.description}"


FORMS = [(of, name) for of, forms in bounds.FORMS.items() for name in forms]


@pytest.mark.parametrize(("of", "name"), FORMS)
def test_forms_are_the_same_for_whoever_calls_a_workload(of: str, name: str) -> None:
    form, found = bounds.FORMS[of][name], workload_bounds.form(of, name)
    assert (found.pattern, found.rule, found.example, found.default) == (
        f"^{form.pattern}$", form.rule, form.example, form.default,
    )  # fmt: skip
    assert form.allows(form.example)
    assert form.default is None or form.allows(form.default)
    for refused in ("", " ", f"{form.example}\n", f"\n{form.example}", 7, None):
        assert not form.allows(refused)
        assert not found.allows(refused)


@given(text=st.text(max_size=80), of=st.sampled_from(FORMS))
def test_a_form_allows_what_a_component_does(text: str, of: tuple[str, str]) -> None:
    form, found = bounds.FORMS[of[0]][of[1]], workload_bounds.form(*of)
    for given_text in (text, form.example + text, text + form.example):
        assert form.allows(given_text) == found.allows(given_text)


def test_a_text_that_is_not_of_the_form_is_refused_with_what_is_allowed() -> None:
    form = Form("[a-z]{1,3}", "1 to 3 small letters", "abc")
    with pytest.raises(WorkloadError, match=r"^--of is 'ABC': allowed is 1 to 3 small letters, "):
        form.check("--of", "ABC")


@pytest.mark.parametrize(
    "url", [
        "https://", "http://10.0.0.7", "http://127.0.0.1:5000:1", "https://me:word@a.example.ae",
        "https://a.example.ae?token=word", "https://a.example.ae#x", "http://[::2]:5000", "ftp://a",
    ],
)  # fmt: skip
def test_an_address_of_a_tracking_server_that_cannot_be(url: str) -> None:
    assert not bounds.FORMS["tracking"]["server"].allows(url)


@pytest.mark.parametrize(
    "url", ["https://[fd00::1]:5000/a", "http://[::1]:5000", "http://localhost/a/b", "https://a"]
)
def test_an_address_of_a_tracking_server(url: str) -> None:
    assert bounds.FORMS["tracking"]["server"].allows(url)


def test_bounds_are_said_as_people_write_numbers() -> None:
    assert bounds.TRAINING["seed"].description == "0 to 2,147,483,647"
    assert bounds.TRAINING["learning_rate"].description == "1e-09 to 10"


def test_the_components_and_the_settings_allow_what_the_workloads_do() -> None:
    for _, options, table, settings in PLACES:
        hints: dict[str, Any] = get_type_hints(settings, include_extras=True)
        for name, bound in options.items():
            field = table.get(camel(name))
            if field is not None:
                assert isinstance(field.limit, Between)
                assert (field.limit.low, field.limit.high) == (bound.low, bound.high), name
            hint = hints.get(name)
            if hint is not None:
                found = next(each for each in _metadata(hint) if isinstance(each, Between))
                assert (found.low, found.high, found.above) == (bound.low, bound.high, False), name


def test_the_components_and_the_settings_take_the_words_that_the_workloads_do() -> None:
    for workload, _, table, settings in PLACES:
        hints: dict[str, Any] = get_type_hints(settings, include_extras=True)
        for name, choice in bounds.CHOICES.get(workload, {}).items():
            if (workload, name) == ("training", "model"):
                continue  # there, the class of a team's own model
            field = table.get(camel(name))
            if field is not None:
                assert isinstance(field.limit, OneOf)
                assert field.limit.values == choice.words, name
                assert field.default in {None, choice.default}, name
            if name in hints:
                [found] = [each for each in _metadata(hints[name]) if isinstance(each, OneOf)]
                assert found.values == choice.words, name
                assert settings.model_fields[name].default == choice.default


def test_data_classes_are_the_same_where_they_can_not_be_shared() -> None:
    assert bounds.CHOICES["optimization"]["data_class"].words == DATA_CLASS.values


@pytest.mark.parametrize("given", ["", "Auto", "auto ", "fastest"])
def test_a_word_that_is_none_is_refused_with_what_is_allowed(given: str) -> None:
    expected = r"^--quantise is '.*': allowed is one of auto, never, int8, int4$"
    with pytest.raises(WorkloadError, match=expected):
        bounds.CHOICES["optimization"]["quantise"].check("--quantise", given)


def _metadata(hint: Any) -> list[Any]:
    own = list(getattr(hint, "__metadata__", ()))
    return own + [each for part in get_args(hint) for each in _metadata(part)]


@pytest.mark.parametrize("value", [0, 0.0, 1_000_000])
def test_no_gradient_clip_is_allowed_everywhere(value: float) -> None:
    table: Table = {"gradientClip": TrainingRunHandler.table["gradientClip"]}
    assert check(table, {"gradientClip": value}) == {"gradientClip": value}
    assert TrainingSettings.model_validate({"gradientClip": value}).gradient_clip == value
    assert bounds.TRAINING["gradient_clip"].allows(value)


def test_the_component_says_large_bounds_in_full() -> None:
    table: Table = {"seed": TrainingRunHandler.table["seed"]}
    with pytest.raises(InvalidInputsError, match="allowed: a whole number from 0 to 2147483647"):
        check(table, {"seed": 2**31})
