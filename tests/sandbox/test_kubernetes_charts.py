"""Charts and manifests: what is read, found, ordered and named; Helm itself in the last ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.engine.errors import EngineError
from falaj.sandbox.charts import groups, library
from falaj.sandbox.charts.groups import CHART, CONFIG_FILE, CONFIG_GROUP, Capabilities, declared
from falaj.wire import ASSET, SIGNATURE

SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
KIND = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.org"},
    "spec": {"group": "example.org", "names": {"kind": "Widget"}, "scope": "Namespaced"},
}
WIDGET = {"apiVersion": "example.org/v1", "kind": "Widget", "metadata": {"name": "w"}}


def settings(name: str, namespace: str | None = None) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}


@pytest.fixture
def charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(library.CHARTS_VARIABLE, str(tmp_path / "charts"))
    return tmp_path / "charts"


def put(charts: Path, name: str, version: str, **about: Any) -> Path:
    folder = charts / f"{name}-{version}"
    (folder / "templates").mkdir(parents=True)
    head = {"apiVersion": "v2", "name": name, "version": version, **about}
    (folder / "Chart.yaml").write_text(yaml.safe_dump(head))
    (folder / "values.yaml").write_text("colour: red\nextra: {enabled: false}\n")
    (folder / "templates" / "c.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: '{{ .Release.Name }}-c'}\n"
        "data: {colour: '{{ .Values.colour }}', of: '{{ .Capabilities.KubeVersion.Version }}'}\n"
        "---\napiVersion: batch/v1\nkind: Job\n"
        "metadata: {name: hook, annotations: {helm.sh/hook: pre-install}}\n"
    )
    return folder


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: [", "is no YAML"),
        ("just a text", "has no apiVersion and kind"),
        ("apiVersion: v1\nkind: Pod\n", "has no metadata.name"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {name: 3}\n", "has no metadata.name"),
        ("apiVersion: v1\nkind: List\nitems: [3]\n", "has no apiVersion and kind"),
    ],
)
def test_manifests_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(EngineError, match=f"here.*{reason}"):
        library.read_manifests(text, "here")


def test_plain_values_are_read_as_the_api_server_reads_them() -> None:
    text = "{d: 2026-01-02, t: 1:30, e: =, o: 0644, h: 0x1f, f: 1e3, y: yes, n: ~, s: '1'}"
    assert library.read_mapping(text, "here") == {
        "d": "2026-01-02", "t": "1:30", "e": "=", "o": 420, "h": 31, "f": 1000.0, "y": True,
        "n": None, "s": "1",
    }  # fmt: skip


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = library.read_manifests(text, "here")
    except EngineError:
        return
    assert all(each["kind"] for each in found)


def test_objects_wait_for_their_kind_and_their_namespace() -> None:
    items = [{**WIDGET, "metadata": {"name": "w", "namespace": "ns"}}, settings("c"), SPACE, KIND]
    found = declared(items, "pre", "elsewhere")
    names = [each.name for each in found]
    assert names == ["pre:widgets.example.org", "pre:ns", "pre:ns/w", "pre:elsewhere/c"]
    assert [each.after for each in found] == [(), (), (0, 1), ()]
    assert found[0].token == "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinition"
    assert found[3].token == "kubernetes:core/v1:ConfigMap"


def test_kinds_of_the_group_say_where_they_live_and_nothing_is_awaited() -> None:
    found = declared([KIND, WIDGET], "", "ns", skip_await=True)
    assert found[1].name == "ns/w"
    assert all(
        each.manifest["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}
        for each in found
    )
    assert "annotations" not in WIDGET["metadata"]


@pytest.mark.parametrize(
    ("reference", "version", "found"),
    [
        ("oci://registry.example/charts/kueue", "0.19.2", "0.19.2"),
        ("repo/kueue", "v0.19.2", "0.19.2"),
        ("https://example.org/kueue-0.9.0.tgz", "", "0.9.0"),
        ("kueue", "", "0.19.2"),
        ("kueue", "0.1.0", None),
        ("other", "", None),
    ],
)
def test_charts_are_found_by_name_and_version(
    charts: Path, reference: str, version: str, found: str | None
) -> None:
    for each in ("0.9.0", "0.19.2", "0.19.2-rc.1"):
        put(charts, "kueue", each)
    chart = library.find(reference, version, charts)
    assert (chart and chart.version) == found


def test_chart_that_is_not_there_is_said_loudly(charts: Path) -> None:
    found = groups.build(
        CHART, "k", {"chart": "oci://x/kueue", "version": "1.2.3"}, Capabilities()
    )
    assert found.objects == []
    assert "NOTHING OF IT IS MADE OR CHECKED" in found.warnings[0]
    assert str(charts / "kueue-1.2.3.tgz") in found.warnings[0]


@pytest.mark.parametrize(
    ("token", "inputs", "reason"),
    [
        (CHART, {}, "missing argument 'chart'"),
        (
            CHART,
            {"chart": "x", "postRenderer": {"command": "sed"}},
            "postRenderer isn't supported",
        ),
        (CHART, {"chart": "./c-1.0.0", "values": [1]}, "values: expected a mapping, given list"),
        (CONFIG_FILE, {}, "missing argument 'file'"),
        (CONFIG_FILE, {"file": "https://example.org/x.yaml"}, "reads no manifests from a network"),
        (CONFIG_GROUP, {"files": ["nowhere.yaml"]}, "nowhere.yaml can't be read"),
        ("kubernetes:kustomize/v2:Directory", {}, "is a component that runs inside the vendor's"),
    ],
)
def test_components_with_wrong_arguments(
    charts: Path, monkeypatch: pytest.MonkeyPatch, token: str, inputs: dict[str, Any], reason: str
) -> None:
    put(charts, "c", "1.0.0")
    monkeypatch.chdir(charts)
    with pytest.raises(EngineError, match=reason):
        groups.build(token, "k", inputs, Capabilities())


def test_group_of_texts_objects_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(settings("from-file")))
    inputs = {
        "objs": [settings("given")],
        "files": [str(tmp_path / "*.yaml")],
        "yaml": yaml.safe_dump_all([settings("text"), None, SPACE]),
        "resourcePrefix": "",
    }
    found = groups.build(CONFIG_GROUP, "g", inputs, Capabilities("ns"))
    assert [each.name for each in found.objects] == [
        "ns", "ns/given", "ns/from-file", "ns/text",
    ]  # fmt: skip


def test_charts_that_a_chart_needs(charts: Path, tmp_path: Path) -> None:
    needs = [
        {"name": "other", "version": "1.0.0", "repository": "oci://x"},
        {
            "name": "extra",
            "version": "1.0.0",
            "repository": "oci://x",
            "condition": "extra.enabled",
        },
    ]
    chart = library.described(put(charts, "c", "1.0.0", dependencies=needs))
    with pytest.raises(EngineError, match=r"c 1.0.0 depends on other 1.0.0, which it doesn't"):
        library.staged(chart, {}, charts, tmp_path / "first")
    put(charts, "other", "1.0.0")
    (tmp_path / "work").mkdir()
    staged = library.staged(chart, {}, charts, tmp_path / "work")
    assert [each["name"] for each in library.metadata(staged)["dependencies"]] == ["other"]
    assert library.missing_dependencies(staged) == []
    with pytest.raises(EngineError, match=r"depends on extra 1.0.0"):
        library.staged(chart, {"extra": {"enabled": True}}, charts, tmp_path / "last")


def test_chart_of_no_known_module_is_refused(charts: Path) -> None:
    with pytest.raises(EngineError, match="no chart nothing is known in a Go module; known are"):
        library.add(["nothing"], charts)


@pytest.mark.thorough
@pytest.mark.slow
def test_helm_renders_values_and_leaves_hooks_out(charts: Path) -> None:
    put(charts, "c", "1.0.0")
    file = {SIGNATURE: ASSET, "text": "colour: green\n"}
    inputs = {"chart": "c", "version": "1.0.0", "namespace": "ns", "valueYamlFiles": [file]}
    found = groups.build(CHART, "rel", inputs, Capabilities(kube_version="v1.36.0"))
    assert [each.name for each in found.objects] == ["rel:ns/rel-c"]
    assert found.objects[0].manifest["data"] == {"colour": "green", "of": "v1.36.0"}
    inputs["values"] = {"colour": "blue"}
    found = groups.build(CHART, "rel", inputs, Capabilities())
    assert found.objects[0].manifest["data"]["colour"] == "blue"
    (charts / "c-1.0.0" / "templates" / "bad.yaml").write_text('{{ fail "no such colour" }}')
    with pytest.raises(EngineError, match=r"chart c 1.0.0 can't be rendered: .*no such colour"):
        groups.build(CHART, "rel", inputs, Capabilities())
