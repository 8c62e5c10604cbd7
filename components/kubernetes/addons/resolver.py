"""The policy of the cluster's resolver, which answers names of allowed domains alone.

AKS owns the configuration of its CoreDNS and reads the ConfigMap ``coredns-custom`` beside it:
keys that end in ``.server`` are blocks of servers, those in ``.override`` go into its default
block (https://learn.microsoft.com/azure/aks/coredns-custom). k3s does the same
(https://docs.k3s.io/networking/networking-services#coredns). Clusters by kubeadm have the whole in
the ConfigMap ``coredns``, which is written only if that is asked for. EKS takes the configuration
with its add-on, which `Cluster` sets; RKE2 with its chart, by hand (`HelmChartConfig`
``rke2-coredns``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, NotRequired, TypedDict, cast

import pulumi

from falaj.components.catalogue.clusters import COREDNS_CUSTOM
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._validation import OptionsChecker
from falaj.components.kubernetes.addons.addon import Addon, PlatformSpec
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import OneOf
from falaj.components.specification.resolver import (
    AUDIT,
    CLUSTER_DOMAIN,
    DOMAIN,
    ENFORCE,
    Names,
    cloud_domains,
    corefile,
    domain_of,
    override,
    searched_domains,
    servers,
)

WHOLE: Final = "coredns"


@described
class ResolverOptions(TypedDict):
    """Options of ``resolver``."""

    mode: NotRequired[Annotated[str, OneOf((ENFORCE, AUDIT)), Default(ENFORCE)]]
    """What pods are told of other names: ``enforce``, that there is no such name; ``audit``, what
    the network's resolver says, which is logged and counted."""
    domains: NotRequired[list[Annotated[str, DOMAIN]]]
    """Further domains whose names pods resolve, beside the cluster's, the cloud's services', the
    registry, the domains of the network's firewall and hosts that the packs allow;
    ``.example.ae`` stands for all below it. Default: none."""
    searched_domains: NotRequired[list[Annotated[str, DOMAIN]]]
    """Domains that nodes search (``search`` of their ``/etc/resolv.conf``), without a dot before
    them: names in them aren't asked of anybody, and not counted. Default: the cloud's."""
    cluster_domain: NotRequired[Annotated[str, DOMAIN]]
    """The cluster's own domain, where it isn't ``cluster.local``. Existing clusters only."""
    config_map: NotRequired[Annotated[str, OneOf((COREDNS_CUSTOM, WHOLE))]]
    """The ConfigMap in ``kube-system`` that is written: ``coredns-custom``, of AKS and k3s, or
    ``coredns``, of clusters by kubeadm: its ``Corefile`` is replaced, and stays when the stack
    goes, as no name would be found without it. Needed on existing clusters, where it says what the
    cluster reads; ``coredns-custom`` on AKS."""


def _check(options: OptionsChecker, placed: InCluster) -> None:
    found = options.checked(ResolverOptions)
    # With a dot before it, a domain stands for those below it.
    for position, each in enumerate(found["searched_domains"] or ()):
        if each.startswith("."):
            options.say(f"searched_domains[{position}]", f"given {each!r}; leave out the dot")
    if (found["cluster_domain"] or "").startswith("."):
        options.say("cluster_domain", f"given {found['cluster_domain']!r}; leave out the dot")
    if placed.distribution == "aks":
        for option in ("cluster_domain", "config_map"):
            options.foreign(option, "aks")
    else:
        options.needed("config_map", "to know what the cluster's resolver reads")


def _names(spec: PlatformSpec, allowed: Sequence[str] | None) -> Names:
    options, placed = spec.options("resolver"), spec.placed
    domains = (
        *cloud_domains(placed.distribution, placed.region),
        *filter(None, [domain_of(placed.registry)]),
        *(options["domains"] or ()),
        *(allowed or ()),
    )
    searched = options["searched_domains"]
    if searched is None:
        searched = searched_domains(placed.distribution)
    return Names.of(domains, searched, options["cluster_domain"] or CLUSTER_DOMAIN)


def config(spec: PlatformSpec, allowed: Sequence[str] | None) -> dict[str, str]:
    """The ConfigMap's data; ``allowed`` are domains that pods may reach anyway."""
    options, names = spec.options("resolver"), _names(spec, allowed)
    mode = str(options["mode"])
    if options["config_map"] == WHOLE:
        return {"Corefile": corefile(names, mode)}
    return {"falaj.server": servers(names, mode), "falaj.override": override(mode)}


def _after(spec: PlatformSpec) -> Sequence[Manifest]:
    allowed = cast("pulumi.Output[list[str]] | Sequence[str]", spec.allowed_domains)
    name = str(spec.options("resolver")["config_map"] or COREDNS_CUSTOM)
    about = spec.metadata(name, "kube-system")
    # It is there before, and somebody else's: only these keys become the platform's.
    about["annotations"]["pulumi.com/patchForce"] = "true"
    data = (
        allowed.apply(lambda found: config(spec, found))
        if isinstance(allowed, pulumi.Output) else config(spec, allowed)
    )  # fmt: skip
    return ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data},)


RESOLVER: Final = Addon(
    name="resolver",
    summary="names of allowed domains alone, so that names carry no data out",
    namespaces=(),
    releases=(),
    options=ResolverOptions,
    check=_check,
    images=lambda spec: (),
    values=lambda spec: {},
    traffic=lambda spec: {},
    after=_after,
    distributions=("aks", "existing"),
    asked_on=("existing",),
)
