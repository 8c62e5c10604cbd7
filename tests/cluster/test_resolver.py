"""The resolver's policy, judged by a real CoreDNS: what reaches the network's own resolver.

Each attack is seen to succeed against the vendors' configurations first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.specification.resolver import (
    AUDIT,
    ENFORCE,
    REFUSED_QUERIES,
    Names,
    cloud_domains,
    corefile,
    override,
    searched_domains,
    servers,
)
from falaj.engine.controlplane import ControlPlane
from tests.cluster.resolver import (
    AKS,
    NOERROR,
    NXDOMAIN,
    START_SECONDS,
    VENDOR,
    Resolver,
    ask,
    labels,
    resolver,
)

pytestmark = pytest.mark.cluster

HOST, ABOVE, BELOW, DOMAIN = "models.ae", "corp.example", "registry.corp.example", "acme.example"
REGIONS = {"eks": "me-central-1", "aks": "uaenorth"}


def names(distribution: str) -> Names:
    """What a cluster of a cloud resolves: its services, a host, one below another, a domain."""
    domains = (*cloud_domains(distribution, REGIONS[distribution]), HOST, ABOVE, BELOW)
    return Names.of((*domains, f".{DOMAIN}"), searched_domains(distribution), "cluster.local")


@contextmanager
def running(folder: Path, form: str, mode: str) -> Generator[Resolver]:
    """A resolver of a distribution, as the vendor has it or with the policy."""
    if not mode:
        with resolver(folder, {"eks": VENDOR, "aks": AKS}[form]) as found:
            yield found
    elif form == "eks":
        with resolver(folder, corefile(names(form), mode)) as found:
            yield found
    else:
        both = {"falaj.server": servers(names(form), mode), "falaj.override": override(mode)}
        with resolver(folder, AKS, both) as found:
            yield found


@pytest.fixture(scope="module", params=("eks", "aks"))
def form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def vendors(form: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Resolver]:
    with running(tmp_path_factory.mktemp("vendor"), form, "") as found:
        yield found


@pytest.fixture(scope="module")
def enforced(form: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Resolver]:
    with running(tmp_path_factory.mktemp("enforced"), form, ENFORCE) as found:
        yield found


@pytest.fixture(scope="module")
def audited(form: str, tmp_path_factory: pytest.TempPathFactory) -> Generator[Resolver]:
    with running(tmp_path_factory.mktemp("audited"), form, AUDIT) as found:
        yield found


SECRET = "c2vjcmv0"
#: Names that carry something to who holds a domain, each with a type of record.
ATTACKS: Mapping[str, tuple[str | Sequence[bytes], str]] = {
    "a name": (f"{SECRET}.evil.test", "A"),
    "records of text": (f"{SECRET}.evil.test", "TXT"),
    "records of services": (f"{SECRET}.evil.test", "HTTPS"),
    "any bytes": (f"{SECRET}.evil.test", "NULL"),
    "everything": (f"{SECRET}.evil.test", "ANY"),
    "the parent's record": (f"{SECRET}.evil.test", "DS"),
    "as much as fits": ([b"a" * 63] * 3 + [b"b" * 50, b"evil", b"test"], "A"),
    "bytes that aren't letters": ([b"\x00\xff .\\\n", b"evil", b"test"], "A"),
    "another script": ("xn--mgbh0fb.xn--wgbl6a", "A"),
    "letters of any size": (f"{SECRET}.EviL.TeSt", "A"),
    "a foreign address": ("5.113.0.203.in-addr.arpa", "PTR"),
    "a foreign address of 128 bits": (".".join("0f1e2d3c" * 4) + ".ip6.arpa", "PTR"),
    "below the zone of addresses": (f"{SECRET}.8.in-addr.arpa", "TXT"),
    "an allowed name as a beginning": (f"{HOST}.evil.test", "A"),
    "the cluster as a beginning": ("kubernetes.default.svc.cluster.local.evil.test", "A"),
    "an allowed name as an end of a label": (f"evil-{HOST}", "A"),
    "an allowed name within a label": ([b"evil." + HOST.encode()], "A"),
    "an allowed domain within a label": ([b"evil", DOMAIN.encode()], "A"),
    "a top-level domain": (SECRET, "A"),
    "the root": ([], "NS"),
    "below a single host": (f"{SECRET}.{HOST}", "A"),
    "below a host with an allowed one below": (f"{SECRET}.{ABOVE}", "A"),
    "below a host that is below another": (f"{SECRET}.{BELOW}", "TXT"),
    "above an allowed host": ("ae", "A"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_succeeds_against_the_vendors_configuration(
    vendors: Resolver, attack: str
) -> None:
    name, kind = ATTACKS[attack]
    ask(vendors.port, name, kind)
    assert vendors.upstream.heard(name)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_reaches_nobody(enforced: Resolver, attack: str) -> None:
    name, kind = ATTACKS[attack]
    assert ask(enforced.port, name, kind) == (NXDOMAIN, 0)
    assert ask(enforced.port, name, kind, tcp=True) == (NXDOMAIN, 0)
    assert ask(enforced.port, name, kind, edns=True) == (NXDOMAIN, 0)
    ask(enforced.port, name, kind, class_=3)  # CHAOS
    assert not enforced.upstream.heard(name)


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_audit_lets_it_through(audited: Resolver, attack: str) -> None:
    name, kind = ATTACKS[attack]
    ask(audited.port, name, kind)
    assert audited.upstream.heard(name)


ALLOWED = {
    "eks": ("kms.me-central-1.amazonaws.com", "bucket.s3.me-central-1.amazonaws.com",
            "123456789012.dkr.ecr.me-central-1.amazonaws.com",
            "vpce-0a1b.kms.me-central-1.vpce.amazonaws.com"),
    "aks": ("acme.vault.azure.net", "acme.privatelink.vaultcore.azure.net",
            "acme.blob.core.windows.net", "acme.azurecr.io",
            "acme-0a1b.hcp.privatelink.uaenorth.azmk8s.io"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["vendors", "enforced", "audited"])
def test_what_is_allowed_has_an_address(
    form: str, mode: str, request: pytest.FixtureRequest
) -> None:
    found: Resolver = request.getfixturevalue(mode)
    for name in (*ALLOWED[form], HOST, ABOVE, BELOW, DOMAIN, f"a.b.{DOMAIN}", f"MoDeLs.{DOMAIN}"):
        assert ask(found.port, name) == (NOERROR, 1), name
        assert ask(found.port, name, tcp=True) == (NOERROR, 1), name
        assert ask(found.port, name, "AAAA", edns=True) == (NOERROR, 0), name
        assert found.upstream.heard(name)


def test_searching_goes_on_until_the_name_itself(form: str, enforced: Resolver) -> None:
    """As a pod asks by ``ndots:5``: resolvers go on after NXDOMAIN alone."""
    searched = {"eks": "me-central-1.compute.internal", "aks": "0a1b.ax.internal.cloudapp.net"}
    for name in (*ALLOWED[form][:2], HOST):
        tried = [f"{name}.{searched[form]}", f"{name}.some.site.example"]
        for each in tried:
            assert ask(enforced.port, each) == (NXDOMAIN, 0)
            assert not enforced.upstream.heard(each)
        assert ask(enforced.port, name) == (NOERROR, 1)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds within a while: CoreDNS counts and logs after it has answered."""
    end = time.monotonic() + START_SECONDS
    while not (held := holds()) and time.monotonic() < end:
        time.sleep(0.02)
    return held


REQUESTS, MATCHES = "coredns_dns_requests_total", "coredns_template_matches_total"


def settled(found: Resolver) -> float:
    """The count of the rest, once what other tests asked is in it."""
    ask(found.port, f"settled.{time.monotonic_ns()}.test")
    last = -1.0
    while last != (last := found.counted(REQUESTS, zone=".")):
        time.sleep(0.1)
    return last


def test_what_is_refused_is_counted_and_told(enforced: Resolver) -> None:
    matched, before = enforced.counted(MATCHES, zone="."), settled(enforced)
    for _ in range(3):  # an answer from the cache would not be counted
        ask(enforced.port, f"counted-{SECRET}.evil.test")
    assert eventually(lambda: enforced.counted(REQUESTS, zone=".") == before + 3)
    assert eventually(lambda: f"counted-{SECRET}.evil.test. " in enforced.log.read_text("utf-8"))
    assert enforced.counted(MATCHES, zone=".") >= matched + 3
    assert MATCHES in REFUSED_QUERIES
    before = enforced.counted(MATCHES, zone=f"{HOST}.")
    ask(enforced.port, f"counted.{HOST}")
    assert eventually(lambda: enforced.counted(MATCHES, zone=f"{HOST}.") == before + 1)


def test_an_audit_counts_and_tells_what_would_be_refused(form: str, audited: Resolver) -> None:
    before = settled(audited)
    ask(audited.port, ALLOWED[form][0])
    ask(audited.port, f"counted-{SECRET}.evil.test")
    assert eventually(lambda: f"counted-{SECRET}.evil.test. " in audited.log.read_text("utf-8"))
    assert settled(audited) == before + 2  # one of them is `settled`'s own
    assert f"{ALLOWED[form][0]}. " not in audited.log.read_text("utf-8")


@given(
    name=st.lists(st.binary(min_size=1, max_size=63), max_size=6).filter(
        lambda found: sum(len(each) + 1 for each in found) < 200
    ),
    below=st.sampled_from(
        ("", HOST, ABOVE, DOMAIN, "evil.test", "arpa", "local", "amazonaws.com")
    ),
)
def test_nothing_but_allowed_names_reaches_the_network(
    enforced: Resolver, name: list[bytes], below: str
) -> None:
    wanted = [*name, *labels(below)]
    lower = [each.lower() for each in wanted]
    hosts = (labels(HOST), labels(ABOVE), labels(BELOW))
    # What hypothesis makes never ends in a cloud's domain.
    allowed = lower in hosts or lower[-2:] == labels(DOMAIN)
    enforced.upstream.asked.clear()
    ask(enforced.port, wanted)
    if not allowed:
        assert not enforced.upstream.asked


def test_an_alias_of_a_service_reaches_nobody(
    cluster: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """CoreDNS looks up where an alias leads: by the same configuration, and so not to others."""
    aliases = (("leak", f"{SECRET}.evil.test"), ("fine", f"a.{DOMAIN}"))
    cluster.apply([
        {
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"type": "ExternalName", "externalName": host},
        }
        for name, host in aliases
    ])  # fmt: skip
    kubeconfig = cluster.kubeconfig
    within = f"{namespace}.svc.cluster.local"
    with resolver(tmp_path / "vendor", VENDOR, kubeconfig=kubeconfig) as found:
        assert ask(found.port, f"leak.{within}") == (NOERROR, 2)
        assert found.upstream.heard(f"{SECRET}.evil.test")
    text = corefile(names("eks"), ENFORCE)
    with resolver(tmp_path / "enforced", text, kubeconfig=kubeconfig) as found:
        assert ask(found.port, "kubernetes.default.svc.cluster.local") == (NOERROR, 1)
        assert ask(found.port, f"fine.{within}") == (NOERROR, 2)
        ask(found.port, f"leak.{within}")
        assert ask(found.port, f"missing.{within}") == (NXDOMAIN, 0)
        assert not found.upstream.heard(f"{SECRET}.evil.test")
        assert found.upstream.asked == [(b"a", *labels(DOMAIN))]
