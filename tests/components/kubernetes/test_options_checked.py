"""What annotations of options say is what their check holds them to, at any depth."""

import asyncio
import math
import pydoc
from typing import Annotated, Any, NotRequired, TypedDict

import pulumi
import pytest
from annotated_types import Len

from falaj.components.kubernetes._validation import OptionsChecker, checked, options
from falaj.components.kubernetes.addons.velero import VeleroOptions
from falaj.components.specification.argument_errors import ArgumentErrors, InvalidArgumentsError
from falaj.components.specification.arguments import Default, needed_of
from falaj.components.specification.described import described, explained
from falaj.components.specification.limits import OBJECT, Between, OneOf


class Inner(TypedDict):
    """Options within options."""

    hours: NotRequired[Annotated[int, Between(1, 168), Default(4)]]
    """Hours."""
    who: str
    """Who."""


@described
class Outer(TypedDict):
    """Options."""

    minutes: NotRequired[Annotated[int, Between(1, 240), Default(30)]]
    """Minutes."""
    share: NotRequired[Annotated[float, Between(0, 1, above=True)]]
    """Share. Default: half of it in production, else all."""
    count: NotRequired[int]
    """How many. Default: none."""
    kinds: NotRequired[Annotated[list[Annotated[str, OneOf(("a", "b"))]], Len(1), Default(("a",))]]
    """Kinds."""
    names: NotRequired[Annotated[list[Annotated[str, OBJECT]], Len(0, 2)]]
    """Names. Default: none."""
    single: NotRequired[Inner]
    """One. Default: none."""
    several: NotRequired[Annotated[dict[Annotated[str, OBJECT], Inner], Len(0, 2)]]
    """Some, by name. Default: none."""
    listed: NotRequired[list[Inner]]
    """In their order. Default: none."""
    amounts: NotRequired[dict[str, Annotated[int, Between(0, 8)]]]
    """Amounts by name. Default: none."""
    texts: NotRequired[dict[str, str]]
    """Texts by name. Default: none."""
    late: NotRequired[pulumi.Input[str]]
    """Known late. Default: none."""


def refused(given: dict[str, Any], at: str = "addons.some") -> dict[str, str]:
    errors = ArgumentErrors("Platform 'p'")
    checked(given, Outer, errors, at)
    if not errors.count:
        return {}
    with pytest.raises(InvalidArgumentsError) as caught:
        errors.raise_if_any()
    return {each.argument: each.reason for each in caught.value.problems}


@pytest.mark.parametrize(
    ("given", "at", "reason"),
    [
        ({"minutes": 0}, "minutes", "given 0; allowed: a whole number from 1 to 240"),
        ({"minutes": "5"}, "minutes", "given '5'; allowed: a whole number from 1 to 240"),
        ({"minutes": True}, "minutes", "given True; allowed: a whole number from 1 to 240"),
        ({"share": 0}, "share", "given 0; allowed: a number above 0 up to 1"),
        ({"share": math.nan}, "share", "given nan; allowed: a number above 0 up to 1"),
        ({"count": "many"}, "count", "given 'many'; allowed: a whole number"),
        ({"count": math.inf}, "count", "given inf; allowed: a whole number"),
        ({"kinds": []}, "kinds", "given 0 of them; allowed: at least one of a, b"),
        ({"kinds": ["a", "c"]}, "kinds[1]", "given 'c'; allowed: a, b"),
        ({"names": ["a", "b", "c"]}, "names",
         f"given 3 of them; allowed: up to 2, each {OBJECT.description}"),
        ({"names": ["A"]}, "names[0]", f"given 'A'; allowed: {OBJECT.description}"),
        ({"single": 1}, "single", "given 1; allowed: an object with hours, who"),
        ({"single": {}}, "single.who", "missing"),
        ({"single": {"who": "x", "hour": 1}}, "single.hour",
         "is not an option of Inner; did you mean 'hours'?"),
        ({"single": {"who": "x", "hours": 0}}, "single.hours",
         "given 0; allowed: a whole number from 1 to 168"),
        ({"several": []}, "several", "given []; allowed: options by name"),
        ({"several": {"A": {"who": "x"}}}, "several",
         f"given 'A'; allowed: {OBJECT.description}"),
        ({"several": {each: {"who": "x"} for each in "abc"}}, "several",
         "given 3 of them; allowed: up to 2"),
        ({"several": {"a": {"who": "x", "hours": 200}}}, "several['a'].hours",
         "given 200; allowed: a whole number from 1 to 168"),
        ({"listed": {}}, "listed", "given {}; allowed: a list"),
        ({"listed": [{"who": "x"}, {"who": ""}]}, "listed[1].who",
         "given ''; allowed: text that is not empty"),
        ({"amounts": {"gpu": 9}}, "amounts['gpu']",
         "given 9; allowed: a whole number from 0 to 8"),
        ({"amounts": [9]}, "amounts", "given [9]; allowed: whole numbers by name"),
        ({"texts": {"a": 1}}, "texts", "given {'a': 1}; allowed: texts by name"),
    ],
)  # fmt: skip
def test_what_annotations_forbid_is_refused(given: dict[str, Any], at: str, reason: str) -> None:
    assert refused(given) == {f"addons.some.{at}": reason}
    assert refused(given, "") == {at: reason}


def test_an_output_in_place_of_a_plain_option_leaves_the_default() -> None:
    # Tests before this one may have left none.
    asyncio.set_event_loop(asyncio.new_event_loop())
    errors = ArgumentErrors("Platform 'p'")
    late = pulumi.Output.from_input(3)
    found = checked({"minutes": late, "late": late}, Outer, errors)
    assert (found["minutes"], found["late"]) == (30, late)
    assert not errors.count


def test_options_have_their_defaults_at_any_depth() -> None:
    given = {
        "single": {"who": "x"},
        "several": {"a": {"who": "y", "hours": 8.0}},
        "listed": [{"who": "z"}],
        "amounts": {"gpu": 8.0},
        "texts": {"empty": ""},
    }
    errors = ArgumentErrors("Platform 'p'")
    found = OptionsChecker("addons.some", given, errors).checked(Outer)
    assert not errors.count
    assert found == {
        "minutes": 30, "share": None, "count": None, "kinds": ("a",), "names": None,
        "single": {"who": "x", "hours": 4}, "several": {"a": {"who": "y", "hours": 8}},
        "listed": ({"who": "z", "hours": 4},), "amounts": {"gpu": 8}, "texts": {"empty": ""},
        "late": None,
    }  # fmt: skip


def test_help_says_what_annotations_do() -> None:
    texts = explained(Outer)
    assert texts["minutes"] == "Minutes. Allowed: from 1 to 240. Default: 30."
    assert texts["several"] == "Some, by name. Default: none. Allowed: up to 2."
    assert texts["amounts"] == "Amounts by name. Default: none. Allowed: each from 0 to 8."
    shown = pydoc.plain(pydoc.render_doc(Outer))
    assert "several: dict[str, Inner]\n" in shown
    assert "kinds: list[str]\n" in shown
    assert "late: pulumi.Input[str]\n" in shown


def test_what_is_needed_is_known_where_a_modules_annotations_are_texts() -> None:
    """`VeleroOptions.__required_keys__` are all of them there."""
    assert needed_of(VeleroOptions) == ()
    assert "keep_days: int\n" in pydoc.plain(pydoc.render_doc(VeleroOptions))
    errors = ArgumentErrors("Platform 'p'")
    assert options("addons.velero", {"keep_days": 7}, VeleroOptions, errors) == {"keep_days": 7}
    assert not errors.count
