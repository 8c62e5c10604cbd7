"""How the engine reads what stands in a stack file without quotes, and how values are written.

The engine reads YAML with Go's yaml.v3: ``no`` and ``on`` are text there, ``010`` is eight, and an
unquoted date becomes a point in time that no setting takes. Other readers see other things, so
what is read differently by different readers is refused, with the form that all read alike.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Final, cast

#: Numbers as everybody reads and writes them.
_PLAIN_WHOLE: Final = re.compile(r"-?(?:0|[1-9][0-9]*)")
_PLAIN_FLOAT: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
# https://github.com/go-yaml/yaml/blob/v3/resolve.go: underscores are dropped, then strconv reads
# whole numbers with their prefix, and what matches is a float.
_GO_WHOLE: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|[1-9][0-9]*|0)")
_GO_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt ].*)?")
_TRUTHS: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NOTHING: Final = frozenset(("", "~", "null", "Null", "NULL"))
#: Text that needs no quotes anywhere, in no version of YAML.
_BARE: Final = re.compile(r"[A-Za-z/](?:[A-Za-z0-9_./@+-]|:(?=[A-Za-z0-9/_])| (?=[A-Za-z0-9(]))*")
#: Words that YAML 1.1 or 1.2 takes for something else.
_TAKEN: Final = frozenset(("y", "n", "yes", "no", "on", "off", "true", "false", "null"))
#: Line ends and what YAML doesn't print, within quotes.
_ESCAPED: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")
_LARGEST: Final = 2**63


@dataclass(frozen=True)
class Plain:
    """What stands without quotes."""

    value: Any
    """As the engine reads it; a date as the text that it is."""
    unclear: str = ""
    """How it is read, where readers differ or it isn't what it looks like; else empty."""
    loses: bool = False
    """Whether the number, written as text again, isn't what stands there: ``1.30``."""


def read_plain(text: str) -> Plain:
    """A scalar without quotes and without a tag."""
    if text in _NOTHING:
        return Plain(None)
    if text in _TRUTHS:
        return Plain(_TRUTHS[text])
    if _DATE.fullmatch(text):
        return Plain(text, "read as a point in time")
    if text[:1] not in "+-.0123456789":
        return Plain(text)
    return _number(text)


def _number(text: str) -> Plain:
    if _PLAIN_WHOLE.fullmatch(text):
        whole = int(text)
        return Plain(whole, loses=not -_LARGEST <= whole < _LARGEST or text == "-0")
    if _PLAIN_FLOAT.fullmatch(text):
        found = float(text)
        return Plain(found, loses=repr(found) != text or found.is_integer())
    if _SPECIAL.fullmatch(text):
        return Plain(float(text.lower().replace(".", "")), "read as no finite number")
    bare = text.replace("_", "")
    if _GO_WHOLE.fullmatch(bare):
        # Python takes no bare leading zero for base eight.
        octal = re.sub(r"^([-+]?)0(?=[0-7])", r"\g<1>0o", bare)
        whole = int(octal, 0)
        return Plain(whole, f"read as the number {whole}")
    if _GO_FLOAT.fullmatch(bare):
        found = float(bare)
        whole_one = found.is_integer() and abs(found) < _LARGEST
        shown = int(found) if whole_one else found
        return Plain(shown, f"read as the number {shown}")
    return Plain(text)


def decimal(text: str) -> int | float | None:
    """The number that a person meant who wrote it in an unusual form: ``010`` is ten.

    None where there is none that can be written plainly.
    """
    bare = text.replace("_", "").removeprefix("+")
    try:
        return int(bare)
    except ValueError:
        found = read_plain(text).value
    finite = isinstance(found, int | float) and abs(found) < float("inf")
    return found if finite and found == found else None  # noqa: PLR0124 - no NaN


def written(value: Any, *, quote: str = "", in_flow: bool = False) -> str:
    """A value on one line, as YAML that every reader reads alike.

    Args:
        value: text, a number, a truth value, None, or a list or mapping of such.
        quote: the quotes that a text had before, ``'`` or ``"``; kept where it can have them.
        in_flow: whether it stands within brackets.
    """
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value).items()
        parts = (f"{written(key, in_flow=True)}: {written(v, in_flow=True)}" for key, v in entries)
        return "{" + ", ".join(parts) + "}"
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return "[" + ", ".join(written(each, in_flow=True) for each in items) + "]"
    if isinstance(value, str):
        return _text(value, quote, in_flow)
    if value is None:
        return "null"
    return json.dumps(value)


def _text(value: str, quote: str, in_flow: bool) -> str:
    if quote != "" or not bare_enough(value, in_flow=in_flow):
        printable = value.isprintable() and "\n" not in value
        if quote == "'" and printable:
            return "'" + value.replace("'", "''") + "'"
        text = json.dumps(value, ensure_ascii=False)
        return _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    return value


def bare_enough(value: str, *, in_flow: bool = False) -> bool:
    """Whether a text needs no quotes."""
    if not _BARE.fullmatch(value) or value.lower() in _TAKEN:
        return False
    # Some readers split at a colon within brackets.
    return not (in_flow and ":" in value)
