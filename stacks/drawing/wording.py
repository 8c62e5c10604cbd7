"""Words that both renderers use, so that text and picture say the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from falaj.stacks.drawing.model import CONTAINERS, INTERNET, OPENNESS, Node, Picture
from falaj.stacks.lettering import clean

NOTHING: Final = "An empty stack: nothing to draw."
NOTHING_DRAWN: Final = "Nothing of this stack is drawn."
ITSELF: Final = "each to itself"
CLOSED: Final = (
    "Nothing is open to the internet, as far as these resources say; rules of other stacks and "
    "what is made by hand aren't in them."
)
UNSEEN: Final = "What can't be seen yet may be: look again when it is made."
HALF: Final = "half: the other end's rules forbid it"
ENCRYPTION: Final = {
    "customer key": "own key",
    "service key": "service's key",
    "none": "not encrypted",
    "unknown": "key not known",
}
#: Kinds that are shown where things are; the others are ends of flows only.
PLACED: Final = frozenset((
    *CONTAINERS, "pool", "machine", "tier", "workload", "add-on", "balancer", "entrance",
    "endpoint", "gateway", "file system", "store", "database", "registry", "volume", "records",
    "key", "vault", "secret", "authority", "identity", "watch", "names", "other",
))  # fmt: skip
SECTIONS: Final = {
    "places": "Where things are",
    "flow": "What may talk to what",
    "encrypts": "Keys and what they encrypt",
    "reads": "Who may use what",
}
#: What stands before everything else.
_FIRST: Final = ("network", "cluster", "zone", "subnet", "namespace")
#: Members of a group that are named; the rest are counted.
_MOST: Final = 6


def label(node: Node) -> str:
    """A node's name, safe on one line."""
    return clean(node.label) or "(no name)"


def name(picture: Picture, id: str) -> str:
    """A node's name in rows; with its kind, where another one in them is called the same."""
    node = picture.by_id[id]
    others = [each for each in picture.called.get(node.label, ()) if each in picture.related]
    return f"{label(node)} ({node.kind})" if set(others) - {id} else label(node)


def details(node: Node) -> list[str]:
    """What else is said of a node."""
    said = [clean(each) for each in node.details]
    if node.encryption in ENCRYPTION:
        said.append(ENCRYPTION[node.encryption])
    return [each for each in said if each]


def end(picture: Picture, id: str) -> tuple[str, str]:
    """A node as one end of a flow: its name, and who that is."""
    node = picture.by_id[id]
    said: list[str] = []
    if node.kind == "group":
        owner = "" if not node.is_elsewhere else f"; {clean(' '.join(node.details))}"
        said.append((_members(picture, node) or "nobody in it here") + owner)
    elif node.kind in {"namespace", "subnet", "network", "range", "service", "list", "pods"}:
        first = f": {clean(node.details[0])}" if node.details else ""
        said.append(
            f"{node.kind}{first}" if node.kind != "list" else clean(" ".join(node.details))
        )
    elif id != INTERNET:
        said.append(node.kind)
    shown = name(picture, id) if node.kind not in said else label(node)
    return shown, " ".join(filter(None, said))


def verdict(picture: Picture) -> str:
    """What is said where nothing is open to the internet, with what can't be seen yet."""
    return f"{CLOSED} {UNSEEN}" if is_unsure(picture) else CLOSED


def is_unsure(picture: Picture) -> bool:
    """Whether something might be open to the internet that can't be seen yet."""
    unseen = {each.id for each in picture.nodes if each.is_unseen}
    rules = any({each.source, each.target} & unseen for each in picture.of_kind("flow"))
    return rules or OPENNESS in picture.hidden


def _members(picture: Picture, node: Node) -> str:
    """Who is in a group, and who may be; empty where nobody is."""
    said: list[str] = []
    for start, ids in (("", node.members), ("perhaps ", node.possible)):
        found = [name(picture, each) for each in ids if each in picture.by_id]
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        said += [f"{start}{', '.join(found[:_MOST])}{more}"] if found else []
    return "; ".join(said)


#: What is said of groups with members that aren't the source of a row.
_TAKING: Final = "Who is in groups that only take in"
_SHUT: Final = "No rule of these groups lets anything through"
_ELSEWHERE: Final = "Rules of groups that aren't of this stack decide too"


def quiet_groups(picture: Picture) -> str:
    """Groups with members that aren't the source of any flow, in sentences; empty without any."""
    flows = picture.of_kind("flow")
    sources, targets = ({getattr(each, end) for each in flows} for end in ("source", "target"))
    found: dict[str, list[str]] = {_TAKING: [], _SHUT: [], _ELSEWHERE: []}
    for node in picture.nodes:
        if node.kind != "group" or node.id in sources or not (who := _members(picture, node)):
            continue
        if node.id in targets:
            found[_TAKING].append(f"{label(node)} ({who})")
        elif node.is_elsewhere:
            found[_ELSEWHERE].append(f"{label(node)} {clean(' '.join(node.details))} ({who})")
        else:
            found[_SHUT].append(f"{label(node)} ({who})")
    return " ".join(f"{what}: {'; '.join(given)}." for what, given in found.items() if given)


def hidden(picture: Picture) -> str:
    """What can't be told before it is made, in a sentence; empty where nothing is hidden."""
    said: list[str] = []
    for what, names in picture.hidden.items():
        listed = [clean(each) for each in names[:_MOST]]
        more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
        said.append(f"{what} ({', '.join(listed)}{more})")
    return f"Not known before it is made: {'; '.join(said)}." if said else ""


def ways(picture: Picture) -> list[str]:
    """Everything that is open to the internet, in sentences; empty where nothing is."""
    said: list[str] = []
    for inward in (True, False):
        for each in picture.ways(inward):
            other = picture.by_id[each.target if inward else each.source]
            what = clean(each.label) or "everything"
            name = f"{other.kind} {label(other)}"
            arrow = (
                f"the internet may reach {name}" if inward else f"{name} may reach the internet"
            )
            said.append(f"{arrow}: {what}")
    return list(dict.fromkeys(said))


def placed(picture: Picture, container: str) -> list[Node]:
    """The nodes in a container that are shown in it, containers last."""
    found = [each for each in picture.inside(container) if each.kind in PLACED]
    shown = [
        each
        for each in found
        if each.kind not in CONTAINERS or not each.is_elsewhere or placed(picture, each.id)
    ]
    return sorted(shown, key=lambda each: _place_rank(picture, each))


def _place_rank(picture: Picture, node: Node) -> tuple[object, ...]:
    top = _FIRST.index(node.kind) if node.kind in _FIRST else len(_FIRST)
    return (not holds(picture, node), top, node.kind, node.label, node.id) if node.container else (
        top, node.kind, node.label, node.id,
    )  # fmt: skip


def holds(picture: Picture, node: Node) -> bool:
    """Whether something is shown inside of a node, so that it is a box of its own."""
    return bool(placed(picture, node.id))


def left_out(picture: Picture) -> str:
    """What isn't drawn, in a sentence; empty where everything is."""
    total = sum(picture.left_out.values())
    if not total:
        return ""
    resources = count(total, "resource", "resources")
    kinds = sorted(picture.left_out.items(), key=lambda each: (-each[1], each[0]))
    named = ", ".join(f"{count} {clean(kind.rpartition(':')[2])}" for kind, count in kinds[:_MOST])
    more = f" and {len(kinds) - _MOST} more types" if len(kinds) > _MOST else ""
    return f"Not drawn, as settings and parts of what is: {resources} ({named}{more})."


def count(number: int, one: str, many: str) -> str:
    """``1 store``, ``2 stores``."""
    return f"{number} {one if number == 1 else many}"


def title(picture: Picture) -> str:
    """The drawing's title."""
    return f"Stack {clean(picture.name)}" if picture.name else "A stack"


def names(picture: Picture, ids: Sequence[str]) -> str:
    """Names of several nodes."""
    return ", ".join(name(picture, each) for each in ids)
