"""The reference as Markdown, made from what it describes: nothing of it is typed.

Each function reads the models that the product itself uses: settings as ``falaj settings`` shows
them, arguments from the components' classes, rules and controls from their registries, commands
from the command's own tree. `falaj_directives` puts the texts into pages.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_type_hints

import click

from falaj.components.specification.described import described
from falaj.policies.controls import controls, frameworks, rules_by_control
from falaj.policies.model import PACKS
from falaj.policies.rules import all_rules, rules_of
from falaj.stacks.command.tree import COMMANDS, falaj
from falaj.stacks.settings import reference as settings_reference

ROOT = Path(__file__).resolve().parents[2]
#: Packages of components by the word that pages say; those of Azure take the arguments of AWS.
PLATFORMS: Final[Mapping[str, str]] = {
    "clouds": "falaj.components.aws",
    "kubernetes": "falaj.components.kubernetes",
    "local": "falaj.components.local",
}
_WIDTH: Final = 100
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>|#{}$~])")
_NEEDED: Final = ", needed"


def escaped(text: str) -> str:
    """Plain text as Markdown shows it unchanged."""
    return _SPECIAL.sub(r"\\\1", text)


def code(text: str) -> str:
    """Text set as code, whatever stands in it."""
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


def block(text: str, language: str = "text") -> str:
    """A fenced block."""
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def listed(entries: Iterable[tuple[str, str]]) -> str:
    """Terms, each with what it means below it."""
    return "\n\n".join(f"{term}\n: {' '.join(meaning.split())}" for term, meaning in entries)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table; its cells are Markdown of one line."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(each)} |" for each in lines)


def settings() -> str:
    """Every key of a stack's file, by its first part."""
    by_first: dict[str, list[settings_reference.Row]] = {}
    for row in settings_reference.rows():
        by_first.setdefault(row.path[0].removesuffix("[]"), []).append(row)
    parts: list[str] = []
    for name, rows in sorted(by_first.items(), key=lambda each: each[0].casefold()):
        parts += [f"## {code(f'falaj:{name}')}", listed(map(_setting, rows))]
    return "\n\n".join(parts)


def _setting(row: settings_reference.Row) -> tuple[str, str]:
    facts = [f"Allowed: {escaped(row.allowed)}."]
    if row.required:
        facts.append("Needed.")
    elif row.default and "Default:" not in row.meaning:
        facts.append(f"Default: {escaped(row.default)}.")
    return f"{code(row.key)} ({', '.join(row.kinds)})", f"{escaped(row.meaning)} {' '.join(facts)}"


def components(platform: str) -> str:
    """The components of a platform: what each makes, its arguments, its outputs.

    Args:
        platform: one of `PLATFORMS`.

    Raises:
        KeyError: another word.
    """
    package = importlib.import_module(PLATFORMS[platform])
    parts: list[str] = []
    for name in package.__all__:
        kind = getattr(package, name)
        if not name.endswith("Args") and inspect.isclass(kind):
            parts += [f"## {code(name)}", from_docstring(inspect.getdoc(kind) or "")]
            arguments = arguments_of(kind)
            for each in _with_nested(arguments) if arguments else ():
                title = "Arguments" if each is arguments else f"Keys of {code(each.__name__)}"
                parts += [f"**{title}**", listed(map(_argument, fields(each)))]
    return "\n\n".join(parts)


def arguments_of(component: type) -> type | None:
    """The class of a component's arguments; None where it takes none of ours."""
    found = get_type_hints(component.__init__).get("args")
    return found if inspect.isclass(found) and hasattr(found, "__required_keys__") else None


def fields(arguments: type) -> list[tuple[str, str, bool, str]]:
    """Name, type, whether it is needed, and meaning of each argument.

    They stand in the class's docstring as `help` shows it.
    """
    found = _fields(arguments)
    # Classes that others name by the way aren't completed for `help` before somebody asks.
    return found or _fields(described(arguments))


def _fields(arguments: type) -> list[tuple[str, str, bool, str]]:
    names = set(arguments.__annotations__)
    found: list[tuple[str, str, bool, str]] = []
    lines: list[str] = []
    for line in (inspect.getdoc(arguments) or "").splitlines():
        name, colon, kind = line.partition(": ")
        if colon and name in names:
            lines = []
            found.append((name, kind.removesuffix(_NEEDED), kind.endswith(_NEEDED), ""))
        elif found and line.startswith(" "):
            lines.append(line.strip())
            found[-1] = (*found[-1][:3], " ".join(lines))
    return found


def _argument(field: tuple[str, str, bool, str]) -> tuple[str, str]:
    name, kind, needed, meaning = field
    return code(name), f"{code(kind)}{', needed' if needed else ''}. {escaped(meaning)}"


def _with_nested(arguments: type) -> Iterator[type]:
    """A class of arguments, and those that its types name, each once."""
    seen: dict[str, type] = {}
    waiting = [arguments]
    while waiting:
        each = waiting.pop(0)
        if each.__name__ in seen:
            continue
        seen[each.__name__] = each
        yield each
        known = {
            name: one
            for base in (each, *getattr(each, "__orig_bases__", ()))
            for name, one in vars(importlib.import_module(base.__module__)).items()
            if inspect.isclass(one) and hasattr(one, "__required_keys__")
        }
        words = re.findall(r"\w+", " ".join(kind for _, kind, _, _ in fields(each)))
        waiting += [known[word] for word in words if word in known]


def from_docstring(text: str) -> str:
    """A docstring as Markdown: its examples as blocks, its literals as code."""
    parts: list[str] = []
    for is_code, group in itertools.groupby(text.strip().split("\n\n"), key=_is_indented):
        chunks = list(group)
        if is_code:
            # An example, which two colons announce.
            parts[-1:] = [parts[-1].removesuffix("::").rstrip()] if parts else []
            parts.append(block(textwrap.dedent("\n\n".join(chunks)).strip("\n"), "python"))
        else:
            parts += [_literals(each) for each in chunks]
    return "\n\n".join(filter(None, parts))


def _is_indented(paragraph: str) -> bool:
    return all(line.startswith("    ") for line in paragraph.splitlines())


def _literals(text: str) -> str:
    pieces = re.split(r"(``.+?``|`[^`]+`)", text, flags=re.DOTALL)
    return "".join(
        code(" ".join(each.strip("`").split())) if index % 2 else _plain(each)
        for index, each in enumerate(pieces)
    )


def _plain(text: str) -> str:
    # Lists stay lists; whatever else means something to Markdown is text.
    return re.sub(r"([\\<>|#\[\]{}$~_])", r"\\\1", text)


def rules(pack: str) -> str:
    """The rules of a pack: what each demands, what to change, which controls it serves.

    Raises:
        KeyError: no pack is called so.
    """
    return listed(
        (
            f"{code(each.id)} ({each.severity.value})",
            f"{escaped(each.title)}. {escaped(each.remediation)} "
            f"Controls: {', '.join(map(code, each.controls)) or 'none'}."
            + ("" if each.waivable else " No waiver covers it."),
        )
        for each in rules_of(pack)
    )


def packs() -> str:
    """The number of rules of each pack."""
    rows = [(f"[{pack}](#{pack})", str(len(rules_of(pack)))) for pack in PACKS]
    return table(("pack", "rules"), [*rows, ("all", str(len(all_rules())))])


def served_controls() -> str:
    """Every control: how sure its id is, and the rules that serve it or why none does."""
    serving = rules_by_control(all_rules())
    parts: list[str] = []
    for framework in frameworks():
        parts.append(f"## {escaped(framework.name)}")
        parts.append(f"Version: {escaped(framework.version)}. {escaped(framework.note)}")
        rows = [
            (
                code(each.reference),
                escaped(" ".join(each.title.split())),
                each.confidence.value,
                ", ".join(code(one.id) for one in serving[each.reference])
                or escaped(" ".join(each.without_rule.split())),
            )
            for each in controls(framework.key)
        ]
        if rows:
            parts.append(table(("control", "title", "how sure", "rules, or why none"), rows))
    return "\n\n".join(parts)


def commands() -> str:
    """What each command says of itself with ``--help``, by the groups of ``falaj --help``."""
    parts: list[str] = []
    for title, entries in COMMANDS.items():
        parts.append(f"## {title}")
        for name, entry in entries.items():
            command = entry.load()
            parts.append(f"### {code(f'falaj {name}')}")
            parts += [block(each) for each in helps(command, f"falaj {name}")]
    return "\n\n".join(parts)


def helps(command: click.Command, name: str) -> Iterator[str]:
    """The help of a command and of those below it."""
    context = click.Context(
        command, info_name=name, terminal_width=_WIDTH, max_content_width=_WIDTH,
        help_option_names=list(falaj.context_settings["help_option_names"]),
    )  # fmt: skip
    yield command.get_help(context)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            if below is not None:
                yield from helps(below, f"{name} {each}")


def targets() -> str:
    """The Makefile's targets, as ``make help`` shows them."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.findall(r"(?m)^([a-z-]+):.*## (.*)$", text)
    # In a Makefile's comments backticks mean what they mean here.
    return table(("target", "what it does"), [(code(f"make {a}"), _literals(b)) for a, b in found])


#: What pages may ask for, by the directive's first argument.
TEXTS: Final[Mapping[str, Callable[..., Any]]] = {
    "settings": settings,
    "components": components,
    "rules": rules,
    "packs": packs,
    "controls": served_controls,
    "commands": commands,
    "targets": targets,
}


def text_of(words: list[str]) -> str:
    """The Markdown that a page asks for: the name of a text, and what it takes.

    Raises:
        ValueError: no text is called so, or it takes something else.
    """
    name, *given = words
    if name not in TEXTS:
        raise ValueError(f"falaj-reference has no {name!r}: it takes one of {', '.join(TEXTS)}")
    try:
        made: str = TEXTS[name](*given)
    except (KeyError, TypeError) as error:
        raise ValueError(f"falaj-reference can't make {' '.join(words)!r}: {error}") from None
    return made
