"""Charts and manifests of others: from allowed hosts, pinned, and open to be judged.

https://www.pulumi.com/registry/packages/kubernetes/choosing-the-right-helm-resource-for-your-use-case/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Path,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_false,
    is_list,
    is_true,
    is_unknown,
    number,
    rule,
    select,
    text,
)
from falaj.policies.reading.hosts import host_of
from falaj.policies.reading.images import is_allowed, parse
from falaj.policies.reading.kubernetes import (
    Manifest,
    is_bundle,
    is_system,
    kinds,
    manifests,
    unreadable,
)
from falaj.policies.reading.services import may_reach
from falaj.wire.documents import is_mapping

_CHARTS: Final = frozenset({
    "kubernetes:helm.sh/*:Release", "kubernetes:helm.sh/*:Chart", "kubernetes:helm:*",
})  # fmt: skip
_DELIVERY: Final = kinds(
    "helm.toolkit.fluxcd.io:HelmRelease",
    "kustomize.toolkit.fluxcd.io:Kustomization",
    "argoproj.io:Application",
    "helm.cattle.io:HelmChart",
)
_SOURCES: Final = (
    _CHARTS
    | frozenset({
        "kubernetes:yaml*:ConfigFile", "kubernetes:yaml/v2:ConfigFile",
        "kubernetes:kustomize:Directory", "kubernetes:kustomize/v2:Directory",
    })
    | kinds("source.toolkit.fluxcd.io:", "argoproj.io:App", "helm.cattle.io:HelmChart")
)  # fmt: skip
_CONTROLS: Final = (
    "iso27001:A.5.19", "iso27001:A.5.21", "iso27001:A.8.32", "uae-ia:T6.3.1", "cis-eks:5.1.4",
    "cis-aks:5.1.4",
)  # fmt: skip


def _places(resource: Resource) -> Iterator[tuple[str, Any]]:
    """Where charts and manifests come from, with the path that says so."""
    if is_bundle(resource):
        for path in ("repositoryOpts.repo", "fetchOpts.repo", "repo", "file", "directory"):
            if (value := resource.get(path)) is not ABSENT:
                yield path, value
        if is_unknown(resource.get("chart")) or "://" in text(resource.get("chart")):
            yield "chart", resource.get("chart")
        yield from select(resource.properties, "files")
        return
    for manifest in manifests(resource):
        if manifest.group == "source.toolkit.fluxcd.io":
            paths = ("spec.url", "spec.endpoint")
        elif manifest.group in {"argoproj.io", "helm.cattle.io"}:
            paths = ("spec.source.repoURL", "spec.sources.repoURL", "spec.repo",
                     "spec.template.spec.source.repoURL")  # fmt: skip
        else:
            paths = ()
        for path in paths:
            for inner, value in select(manifest.body, path):
                yield manifest.path(inner), value


def _is_remote(value: object) -> bool:
    """Whether it is fetched from somewhere, rather than a file or folder of the program."""
    given = text(value)
    if given.startswith(("./", "../", "/", "file:")):
        return False
    return "://" in given or given.startswith(("git@", "git::", "github.com/", "gitlab.com/",
                                               "bitbucket.org/")) or "?ref=" in given  # fmt: skip


def _host(value: str) -> str:
    given = value.removeprefix("git::")
    if given.startswith("git@"):
        return given.removeprefix("git@").partition(":")[0]
    return host_of(given) or given.partition("/")[0]


@rule(
    "kubernetes-manifest-source",
    "Charts and manifests come from hosts that are allowed",
    Severity.HIGH,
    _SOURCES,
    _CONTROLS,
    "Copy the chart or the manifests into the program's repository or a registry of an allowed "
    "region, or name the host in allowedRegistries or allowedHosts.",
)
def manifest_source(resource: Resource, context: Context) -> Iterator[Finding]:
    """Nothing is fetched from a public repository when the program runs."""
    chart = Manifest(resource, "helm.sh", "chart", resource.properties)
    for path, value in _places(resource):
        if is_unknown(value):
            if not context.referred(resource, path):
                yield chart.indeterminate(path, f"where it comes from {value.reason}")
        elif _is_remote(value):
            host = _host(text(value))
            image = parse(text(value).partition("://")[2] or text(value))
            if not (may_reach(host, context.settings) or is_allowed(image, context.settings)):
                yield chart.violation(
                    path, f"{host} is neither an allowed registry nor one of allowedHosts"
                )
    path = "plainHttp"
    plain = resource.get(path)
    if is_unknown(plain):
        yield chart.indeterminate(path, f"whether TLS is used {plain.reason}")
    elif is_true(plain):
        yield chart.violation(path, "the chart is fetched without TLS")


@rule(
    "kubernetes-chart-version",
    "Charts of repositories are pinned to a version",
    Severity.MEDIUM,
    _CHARTS,
    _CONTROLS,
    "Set version to an exact version of the chart.",
)
def chart_version(resource: Resource, context: Context) -> Iterator[Finding]:
    """The same program makes the same objects tomorrow."""
    chart = Manifest(resource, "helm.sh", "chart", resource.properties)
    if not is_bundle(resource):
        return
    repo = resource.get("repositoryOpts.repo")
    if repo is ABSENT and "://" not in text(resource.get("chart")):
        return
    version = resource.get("version")
    if is_unknown(version):
        yield chart.indeterminate("version", f"the version {version.reason}")
    elif text(version) and not any(sign in text(version) for sign in "*^~><|xX "):
        return
    elif "@sha256:" not in text(resource.get("chart")):
        given = (
            f"{format_value(version)} is a range"
            if text(version)
            else "no version is set, so the "
        )
        yield chart.violation("version", given + ("" if text(version) else "newest is used"))


@rule(
    "kubernetes-hidden-children",
    "Charts show the objects that they make",
    Severity.MEDIUM,
    _CHARTS | _DELIVERY,
    ("iso27001:A.5.36", "iso27001:A.8.9", "uae-ia:M5.4.1"),
    "Use kubernetes.helm.v4.Chart, whose objects are resources of the stack and are judged one by "
    "one.",
)
def hidden_children(resource: Resource, context: Context) -> Iterator[Finding]:
    """A release, or a delivery controller, makes objects that no rule sees."""
    chart = Manifest(resource, "helm.sh", "chart", resource.properties)
    if is_bundle(resource):
        if resource.kind.endswith(":Release"):
            yield chart.violation(
                "", "the objects of a Release are hidden: only its values can be judged"
            )
        return
    for manifest in manifests(resource):
        if manifest.kind in _HIDING.get(manifest.group, ()):
            yield manifest.violation("", f"what this {manifest.kind} makes can't be judged")


_HIDING: Final[Mapping[str, tuple[str, ...]]] = {
    "helm.toolkit.fluxcd.io": ("HelmRelease",),
    "kustomize.toolkit.fluxcd.io": ("Kustomization",),
    "argoproj.io": ("Application", "ApplicationSet"),
    "helm.cattle.io": ("HelmChart", "HelmChartConfig"),
}


@rule(
    "kubernetes-chart-postrender",
    "No command changes what a chart makes",
    Severity.MEDIUM,
    _CHARTS,
    ("iso27001:A.8.32", "iso27001:A.8.9"),
    "Remove the post-renderer; use the chart's values, or Pulumi's transforms, which are judged.",
)
def chart_postrender(resource: Resource, context: Context) -> Iterator[Finding]:
    """What is judged is what is made."""
    chart = Manifest(resource, "helm.sh", "chart", resource.properties)
    for path in ("postrender", "postRenderer"):
        if resource.get(path) is not ABSENT:
            yield chart.violation(
                path, "a command of the machine that deploys changes the objects"
            )


#: Settings that pods of a chart must not have: the value that is wrong, and why.
_TRUE_IS_WRONG: Final = {
    "privileged": "containers are privileged",
    "hostNetwork": "pods share their node's network",
    "hostPID": "pods share their node's processes",
    "hostIPC": "pods share their node's memory",
    "allowPrivilegeEscalation": "containers may gain privileges",
}
_TELLING: Final = frozenset({*_TRUE_IS_WRONG, "runAsUser", "runAsNonRoot"})


@rule(
    "kubernetes-chart-values",
    "Values of charts keep pods restricted",
    Severity.HIGH,
    _CHARTS,
    ("iso27001:A.8.9", "iso27001:A.8.22", "uae-ia:T5.2.2", "nist-800-207:2"),
    "Remove the value. Agents that need their nodes belong into a namespace of the system's own.",
)
def chart_values(resource: Resource, context: Context) -> Iterator[Finding]:
    """No value asks for what the Pod Security Standards forbid."""
    if is_bundle(resource) and not is_system(resource.get("namespace")):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        yield from _values(chart, resource.get("values"), ("values",))


def _values(chart: Manifest, value: Any, path: Path) -> Iterator[Finding]:
    if is_mapping(value):
        for key, each in value.items():
            at = (*path, str(key))
            if why := _wrong(str(key), each):
                yield chart.violation(format_path(at), why)
            elif is_unknown(each) and str(key) in _TELLING:
                yield chart.indeterminate(format_path(at), f"{key} {each.reason}")
            yield from _values(chart, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _values(chart, each, (*path, index))


def _wrong(key: str, value: Any) -> str:
    if key in _TRUE_IS_WRONG and is_true(value):
        return _TRUE_IS_WRONG[key]
    if key == "runAsUser" and number(value) == 0:
        return "containers run as root"
    if key == "runAsNonRoot" and is_false(value):
        return "containers may run as root"
    if key == "seccompProfile" and get(value, "type") == "Unconfined":
        return "containers run without a seccomp profile"
    if key == "hostPath" and is_mapping(value) and text(value.get("path")):
        return "pods mount files of their node"
    return ""


@rule(
    "kubernetes-unreadable-manifests",
    "Groups of manifests can be read",
    Severity.MEDIUM,
    frozenset({"kubernetes:yaml:ConfigGroup", "kubernetes:yaml/v2:ConfigGroup"}),
    ("iso27001:A.5.36", "iso27001:A.8.9", "uae-ia:M5.4.1"),
    "Give the manifests as objects, or as text that is known before deployment.",
)
def unreadable_manifests(resource: Resource, context: Context) -> Iterator[Finding]:
    """What can't be read isn't judged by any rule."""
    group = Manifest(resource, "yaml", "ConfigGroup", resource.properties)
    for path, reason in unreadable(resource):
        if reason:
            yield group.indeterminate(path, f"a part of the group {reason}")
        else:
            yield group.violation(
                path, "it is no manifest: neither YAML nor an object with a kind"
            )


RULES: tuple[Rule, ...] = (
    manifest_source,
    chart_version,
    hidden_children,
    chart_postrender,
    chart_values,
    unreadable_manifests,
)
