"""Where operators send data and fetch it from, as the catalogue's table tells of their objects.

Only what is said anew is judged: an operator may add its finalizer to an object that was wrong
before, and what was sent then isn't brought back. Versions are any, as fields are called alike in
all that are served: an operator older than the platform's is held as well.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from falaj.components import catalogue
from falaj.components.catalogue.destinations import TOPICS, Field, Form, Sender, Topic
from falaj.components.kubernetes.admission.policy import (
    OWN_RANGES,
    Check,
    ClusterScope,
    Policy,
    Target,
    is_own_address,
    is_own_host,
    joined,
    literal,
    texts,
    when,
)

ALLOWED = (
    "services named in full (service.namespace.svc), hosts of one's own networks, of the "
    "country's regions, or listed in allowed_hosts"
)
#: Of policies that judge no object anew whose spec is as it was.
SAID_ANEW = {
    "said-anew": 'request.operation == "CREATE" || dyn(object).?spec != dyn(oldObject).?spec'
}


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """A policy for each topic of the catalogue's table."""
    return tuple(_policy(scope, each) for each in TOPICS)


def _policy(scope: ClusterScope, topic: Topic) -> Policy:
    targets: dict[str, list[str]] = {}
    for each in topic.kinds:
        targets.setdefault(each.group, []).append(each.resource)
    used: list[Form] = [
        form
        for form in _WRONG
        if any(each.form == form for kind in topic.kinds for each in kind.fields)
    ]
    variables: dict[str, str] = {}
    for form in used:
        variables[form] = _of_kinds(topic.kinds, _fields(form))
        if form in _NAMED:
            variables[f"{form}Names"] = host_names(f"variables.{form}")
    wrong = [_WRONG[form](scope) for form in used]
    if any(each.choices for each in topic.kinds):
        variables["others"] = _of_kinds(topic.kinds, _choices)
        wrong.append("variables.others")
    checks = [
        Check(
            topic.rule, joined(wrong), "data would go elsewhere", ALLOWED,
            "name one of these, or leave out what is abroad alone",
        )
    ]  # fmt: skip
    if any(each.name == "Sidecar" for each in topic.kinds):
        checks.append(_sidecars())
    return Policy(
        topic.name,
        tuple(Target(group, "*", tuple(found)) for group, found in targets.items()),
        tuple(checks),
        variables,
        SAID_ANEW,
    )


def _sidecars() -> Check:
    mode = "object.spec.?outboundTrafficPolicy.orValue({}).?mode"
    return Check(
        "kubernetes-mesh-open",
        when(f'object.kind == "Sidecar" && {mode}.orValue("") == "ALLOW_ANY"', '"ALLOW_ANY"'),
        "pods of the mesh could reach any host", "REGISTRY_ONLY", "leave the mode out",
    )  # fmt: skip


def host_names(values: str) -> str:
    """Hosts of URLs, of ``host:port`` and of addresses: a list of as many texts.

    A text whose host can't be read gives one that no host is called.
    """
    url = (
        '(isIP(v) && v.contains(":") ? "any://[" + v + "]" : v.contains("://") ? v : '
        'v.startsWith("//") ? "any:" + v : "any://" + v)'
    )
    host = '(isURL(u) && url(u).getHostname() != "" ? url(u).getHostname() : "(no host)")'
    return f"{values}.map(v, {url}).map(u, {host})"


def _abroad(scope: ClusterScope, found: str) -> str:
    return f"{found}.filter(h, !{is_own_host('h', scope.hosts_pattern, scope.networks)})"


def _code(scope: ClusterScope) -> str:
    """An image without a host is one of Docker's."""
    hosts = 'variables.codeNames.map(h, h.matches("[.:]") ? h : "docker.io")'
    return _abroad(scope, hosts)


def _ranges(scope: ClusterScope) -> str:
    own = texts([*OWN_RANGES, *scope.networks])
    inside = f"{own}.exists(n, cidr(n).containsCIDR(cidr(r)))"
    own_address = is_own_address("r", scope.networks)
    return f"variables.range.filter(r, !(isCIDR(r) ? {inside} : {own_address}))"


def regions(scope: ClusterScope) -> str:
    """Regions of clouds that are in the country, as a list in CEL."""
    return texts({each.region for each in catalogue.all_places()} | {scope.placed.region})


#: Forms whose texts have a host.
_NAMED = frozenset({"host", "code"})
_WRONG: dict[Form, Callable[[ClusterScope], str]] = {
    "host": lambda scope: _abroad(scope, "variables.hostNames"),
    "code": _code,
    "range": _ranges,
    "region": lambda scope: f"variables.region.filter(r, !(r in {regions(scope)}))",
}


# Texts at many paths of an object, as one expression of CEL.
#
# CEL can't flatten lists of lists: what each level has is joined by line ends, and split at last.
# A text with a line end is taken for two, each of which is judged.

_Leaf = Callable[[str], str]
"""The texts of a key as a list, given the expression of what holds it."""
_NOT_NULL = ".filter(v, v != null)"


@dataclass
class _Node:
    """Keys below one key of objects."""

    inner: dict[str, "_Node"] = field(default_factory=dict[str, "_Node"])
    """By key; a list's with ``[]`` behind it."""
    keys: list[str] = field(default_factory=list[str])
    """Keys whose value is a text."""
    leaves: list[_Leaf] = field(default_factory=list[_Leaf])
    """Other texts."""

    def at(self, path: Iterable[str]) -> "_Node":
        """The node at a path, made where it isn't there."""
        node = self
        for each in path:
            node = node.inner.setdefault(each, _Node())
        return node


def _of_kinds(kinds: Iterable[Sender], add: Callable[[_Node, Sender], None]) -> str:
    """The texts of an object, whichever of some kinds it is."""
    by_tree: dict[str, list[str]] = {}
    for kind in kinds:
        root = _Node()
        add(root, kind)
        if root.inner:
            by_tree.setdefault(_text_of(root, "dyn(object)", 0), []).append(kind.name)
    expression = '""'
    for tree, found in by_tree.items():
        expression = f"(object.kind in {texts(found)} ? {tree} : {expression})"
    return f'{expression}.split("\\n").filter(v, v != "")'


def _text_of(node: _Node, here: str, depth: int) -> str:
    """All texts below a node as one; null and what isn't there give none."""
    item = f"i{depth}"
    found = [leaf(here) for leaf in node.leaves]
    if node.keys:
        found.append(f"[{', '.join(f'?{here}.?{key}' for key in node.keys)}]{_NOT_NULL}")
    for key, inner in node.inner.items():
        at = f"{here}.?{key.removesuffix('[]')}"
        there = f"{at}.orValue([])" if key.endswith("[]") else f"[?{at}]"
        found.append(f"{there}{_NOT_NULL}.map({item}, {_text_of(inner, item, depth + 1)})")
    return f'({joined(found)}).join("\\n")'


def _fields(form: Form) -> Callable[[_Node, Sender], None]:
    def add(root: _Node, kind: Sender) -> None:
        for each in kind.fields:
            if each.form == form:
                path = each.path.split(".")
                holder = root.at(path[:-1])
                if path[-1].endswith("[]") or each.default or each.instead or each.cluster:
                    holder.leaves.append(_leaf(each, path[-1]))
                else:
                    holder.keys.append(path[-1])

    return add


def _leaf(given: Field, key: str) -> _Leaf:
    def leaf(here: str) -> str:
        if key.endswith("[]"):
            return f"{here}.?{key[:-2]}.orValue([]){_NOT_NULL}"
        value_of = "optional.ofNonZeroValue(o)"
        if given.cluster:
            value_of = f"(o == {literal(given.cluster)} ? optional.none() : {value_of})"
        value = f"{here}.?{key}.optFlatMap(o, {value_of})"
        value = f"{value}.orValue({literal(given.default)})"
        if given.instead:
            other = f"{here}[?k].optFlatMap(o, optional.ofNonZeroValue(o)).hasValue()"
            value = f'({texts(given.instead)}.exists(k, {other}) ? "" : {value})'
        return f"[{value}]"

    return leaf


def _choices(root: _Node, kind: Sender) -> None:
    for each in kind.choices:
        ends = f" && k.endsWith({literal(each.ending)})" if each.ending else ""
        keys = texts(each.keys)

        def leaf(here: str, keys: str = keys, ends: str = ends) -> str:
            return f"{here}.filter(k, !(k in {keys}) && {here}[k] != null{ends})"

        root.at(each.path.split(".")).leaves.append(leaf)
