"""Where operators send data: what leads abroad is refused by cluster and packs alike.

Objects are judged under the definitions that the operators' own projects publish.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.catalogue.destinations import TOPICS, Choice
from falaj.engine.controlplane import ControlPlane, addons, binaries, start
from falaj.engine.controlplane.objects import SIDE_BY_SIDE
from tests.cluster.residency_cases import RESIDENCY, Case, cases, found_by_packs, merged
from tests.cluster.residency_cluster import NAMESPACES, install, namespace, refusal

#: By group of definitions: all of the table's kinds are among them.
DEFINITIONS = (
    "istio", "envoy-gateway", "prometheus-operator", "external-secrets", "cert-manager", "velero",
)  # fmt: skip
FORBIDDEN = cases("forbidden/destinations.yaml")
PERMITTED = cases("permitted/destinations.yaml")
#: Rules that the table's objects are judged by, in the packs and by admission.
RULES = {each.rule for each in FORBIDDEN}
#: What an expression that fails is told by; a clear refusal, or an invalid object's, is none.
ERRORS = ("resulted in error", "no such overload", "no such key", "failed to evaluate")
OLD: dict[str, Any] = {
    "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
    "metadata": {"name": "old", "namespace": "acme-serving"},
    "spec": {"hosts": ["api.example.com"], "ports": [{"number": 443, "name": "tls"}]},
}  # fmt: skip
_KINDS = [kind for topic in TOPICS for kind in topic.kinds]
#: A version that keeps whatever it is given: definitions drop what is null, older ones may not.
LOOSE = "loose"


def _definitions() -> list[dict[str, Any]]:
    """Every definition of the operators that the table is about."""
    binaries.ensure((addons.DEFINITIONS,))
    return addons.definitions(DEFINITIONS)


def _key(definition: Mapping[str, Any]) -> tuple[str, str]:
    return definition["spec"]["group"], definition["spec"]["names"]["kind"]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A cluster in which a service abroad is older than the policies."""
    kinds = {(each.group, each.name) for topic in TOPICS for each in topic.kinds}
    kinds |= {("velero.io", f"{each}Location") for each in ("BackupStorage", "VolumeSnapshot")}
    kinds |= {("generators.external-secrets.io", "Password")}
    wanted = [each for each in _definitions() if _key(each) in kinds]
    assert {_key(each) for each in wanted} == kinds
    for each in wanted:
        spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
        loose = {"name": LOOSE, "served": True, "storage": False, "schema": schema}
        each["spec"]["versions"].append(loose)
    with start() as found:
        addons.install_definitions(found.objects, wanted)
        found.apply([namespace(*each) for each in NAMESPACES])
        found.apply([OLD])
        install(found, RESIDENCY)
        yield found


@pytest.mark.cluster
@pytest.mark.parametrize("case", FORBIDDEN, ids=str)
def test_what_leads_abroad_is_denied(plane: ControlPlane, case: Case) -> None:
    said = refusal(plane, case.manifest)
    assert f"ValidatingAdmissionPolicy '{case.by}'" in said
    assert f"({case.rule})" in said
    assert "; allowed: " in said


@pytest.mark.cluster
@pytest.mark.parametrize("case", PERMITTED, ids=str)
def test_what_stays_is_taken(plane: ControlPlane, case: Case) -> None:
    assert refusal(plane, case.manifest) == ""


@pytest.mark.parametrize("case", FORBIDDEN, ids=str)
def test_a_pack_finds_it_before_it_is_deployed(case: Case) -> None:
    assert case.rule in found_by_packs(case.manifest)


@pytest.mark.parametrize("case", PERMITTED, ids=str)
def test_the_packs_take_what_stays(case: Case) -> None:
    assert found_by_packs(case.manifest) & RULES == set()


def _changed(plane: ControlPlane, change: Mapping[str, Any], subresource: str = "") -> str:
    """What the API server has against a change of the old object."""
    path = plane.objects.path_of(OLD) + subresource
    try:
        plane.objects.request("PATCH", path, change, "application/merge-patch+json", dryRun="All")
    except ApiException as error:
        return str(error.body)
    return ""


@pytest.mark.cluster
def test_operators_keep_their_hold_on_what_was_wrong_before(plane: ControlPlane) -> None:
    assert (
        _changed(plane, {"metadata": {"finalizers": ["example.ae/x"], "labels": {"a": "b"}}}) == ""
    )
    condition = {"type": "Reconciled", "status": "True"}
    assert _changed(plane, {"status": {"conditions": [condition]}}, "/status") == ""
    assert "falaj-mesh-destinations" in _changed(plane, {"spec": {"hosts": ["www.example.com"]}})
    assert _changed(plane, {"spec": {"hosts": ["login.example.ae"]}}) == ""


def _nulled(value: Any) -> Iterator[Any]:
    """The same with one key at a time left out, null or empty, at any depth."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield {name: one for name, one in value.items() if name != key}
            for empty in (None, *((type(each)(),) if isinstance(each, dict | list | str) else ())):
                yield {**value, key: empty}
            for inner in _nulled(each):
                yield {**value, key: inner}
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield [*value[:index], None, *value[index + 1 :]]
            for inner in _nulled(each):
                yield [*value[:index], inner, *value[index + 1 :]]


@pytest.mark.cluster
def test_no_expression_fails_on_what_is_null_or_empty(plane: ControlPlane) -> None:
    """The last change of each object is none: it shows that the loose version is judged, too."""
    failed: dict[str, str] = {}
    asked: list[tuple[Case, dict[str, Any]]] = []
    for case in FORBIDDEN:
        if case.manifest["kind"] != "PersistentVolume":
            group = case.manifest["apiVersion"].partition("/")[0]
            loose = {**case.manifest, "apiVersion": f"{group}/{LOOSE}"}
            asked += [(case, {**loose, "spec": each}) for each in _nulled(loose["spec"])]
            asked.append((case, loose))
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        answers = pool.map(lambda one: refusal(plane, one[1], create=True), asked)
        for (case, manifest), said in zip(asked, answers, strict=True):
            if any(each in said for each in ERRORS) or (
                manifest["spec"] is case.manifest["spec"] and case.rule not in said
            ):
                failed[f"{case}: {manifest['spec']}"] = said
    assert len(asked) > 400
    assert not failed


@pytest.mark.cluster
def test_long_lists_are_judged_within_the_api_servers_limits(plane: ControlPlane) -> None:
    """An expression that costs too much is an error, which would refuse what is right."""
    (scraped,) = (one for one in PERMITTED if one.name == "targets of one's own")
    targets = [f"node-{number}.acme.internal:9100" for number in range(2000)]
    change = {"spec": {"staticConfigs": [{"targets": targets}]}}
    assert refusal(plane, merged(scraped.manifest, change), create=True) == ""
    change["spec"]["staticConfigs"].append({"targets": ["evil.example.com:9100"]})
    assert "evil.example.com" in refusal(plane, merged(scraped.manifest, change), create=True)


#: What looks like a destination and isn't one, or is judged elsewhere.
DECIDED = {
    # Pods, which are judged as pods when operators make them.
    r"spec\.(.*\.)?(initC|c)ontainers\[\]\..*": "a pod",
    r"spec\.(.*\.)?volumes\[\]\..*": "a pod",
    r"spec\.(dnsConfig|hostAliases\[\])\..*": "a pod",
    # Whom requests are for, by which they are told apart, or what they are called.
    r"DestinationRule spec\.host": "requests",
    r"(Gateway|Sidecar) spec\..*\.(hosts\[\]|defaultEndpoint)": "requests",
    r"VirtualService spec\.(hosts\[\]|tls\[\]\.match\[\]\.sniHosts\[\])": "requests",
    r"VirtualService spec\.http\[\]\.(redirect|rewrite)\.uri": "a path",
    r"AuthorizationPolicy spec\..*": "requests",
    r".*\.healthCheck\.active\.http\.hostname": "a header",
    r".*\.backendUtilization\.outOfBand\.authority": "a header",
    r".*\.tracing\.spanName\.server": "a name in traces",
    r".*\.clientIPGeoLocations\[\]\.region": "where requests come from",
    r"SecurityPolicy spec\.jwt\.providers\[\]\.issuer": "compared; the keys' address is judged",
    r"SecurityPolicy spec\.oidc\.(cookieDomain|redirectURL)": "of the gateway itself",
    # Links in messages, and by what people reach the program itself.
    r"AlertmanagerConfig spec\..*\.(clientURL|url|iconURL|imageURL|thumbURL)": "a link",
    r"spec\.(externalUrl|alertQueryUrl|clusterAdvertiseAddress)": "the program itself",
    r"ScrapeConfig spec\.dockerSDConfigs\[\]\.hostNetworkingHost": "a name for targets",
    # A region or domain within a service whose address is judged.
    r"ScrapeConfig spec\.(nomad|openstack)SDConfigs\[\]\.region": "within a service",
    r"(Cluster)?SecretStore spec\.provider\.barbican\.region": "within a service",
    r"(Cluster)?SecretStore spec\.provider\.secretserver\.domain": "within a service",
    # In certificates, and names proved in a DNS whose service has no region.
    r"Certificate spec\..*": "in a certificate",
    r"Order spec\.ipAddresses\[\]": "in a certificate",
    r"(Cluster)?Issuer spec\.ca\.ocspServers\[\]": "in a certificate",
    r"(Cluster)?Issuer spec\..*\.route53\.region": "Route 53 has one endpoint",
    # Made by cert-manager from issuers; docs/explanation/limits.md.
    r"Challenge spec\..*": "made by cert-manager",
}
LOOKS = re.compile(
    r"(?i)(url|uri|hosts?|hostnames?|servers?|endpoints?|address(es)?|region|authority|domain|"
    r"issuer|hostapi|registry|portals?|targets)$"
)


def _texts(schema: Mapping[str, Any], at: str = "") -> Iterator[str]:
    """Paths of all texts of a definition, as the table writes them."""
    for key, each in schema.get("properties", {}).items():
        path = f"{at}.{key}" if at else key
        inner = each
        while inner.get("type") == "array":
            inner, path = inner["items"], f"{path}[]"
        if "properties" in inner:
            yield from _texts(inner, path)
        elif inner.get("type") == "string" or "x-kubernetes-int-or-string" in inner:
            yield path


@pytest.mark.cluster
def test_every_field_that_looks_like_a_destination_was_decided_about() -> None:
    """A new version of a definition brings none that nobody looked at."""
    undecided: set[str] = set()
    used: set[str] = set()
    unknown = {(each.group, each.name, one.path) for each in _KINDS for one in each.fields}
    for definition in _definitions():
        group, name = _key(definition)
        kinds = [each for each in _KINDS if (each.group, each.name) == (group, name)]
        for version in definition["spec"]["versions"]:
            for path in _texts(version["schema"]["openAPIV3Schema"]):
                if (group, name, path) in unknown:
                    unknown.discard((group, name, path))
                told = any(path == one.path for each in kinds for one in each.fields)
                last = path.rpartition(".")[2].removesuffix("[]")
                if told or path.startswith("status.") or not LOOKS.search(last):
                    continue
                if any(_refuses(choice, path) for each in kinds for choice in each.choices):
                    continue
                by = [
                    each
                    for each in DECIDED
                    if re.fullmatch(each, path) or re.fullmatch(each, f"{name} {path}")
                ]
                used |= set(by)
                if not by:
                    undecided.add(f"{name} {path}")
    assert undecided == set()
    assert set(DECIDED) - used == set()
    # What has a field of its own only in versions that are newer or older than the tried ones.
    assert {f"{name} {path}" for _, name, path in unknown} == set()


def _refuses(choice: Choice, path: str) -> bool:
    """Whether a choice refuses what holds a field."""
    if not path.startswith(f"{choice.path}."):
        return False
    key = path[len(choice.path) + 1 :].split(".", maxsplit=1)[0].removesuffix("[]")
    return key not in choice.keys and key.endswith(choice.ending)
