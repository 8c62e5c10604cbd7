"""Addresses and names that only one's own networks know, and domains that anybody may have."""

from typing import Final

OWN_RANGES: Final = (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8",
    "169.254.0.0/16", "fc00::/7", "fe80::/10", "::1/128",
)  # fmt: skip
#: Names that only a private network knows (RFC 6762, RFC 8375, and Kubernetes' own).
PRIVATE_SUFFIXES: Final = (
    ".internal", ".local", ".localhost", ".lan", ".home.arpa", ".svc", ".cluster.local", ".test",
    ".intranet", ".corp", ".private",
)  # fmt: skip
#: Domains of three letters and more that services are commonly found in
#: (https://data.iana.org/TLD/tlds-alpha-by-domain.txt has all).
DOMAINS: Final = frozenset({
    "academy", "agency", "app", "art", "arpa", "biz", "blog", "bot", "box", "build", "capital",
    "cat", "chat", "cloud", "club", "codes", "com", "community", "company", "computer",
    "design", "dev", "digital", "dubai", "edu", "email", "energy", "engineer", "engineering",
    "example", "exchange", "expert", "finance", "fun", "fund", "games", "global", "gov", "group",
    "host", "hosting", "info", "ink", "int", "link", "live", "ltd", "mil", "mobi", "mov", "name",
    "net", "network", "new", "news", "ninja", "one", "online", "onl", "org", "page", "plus",
    "pro", "pub", "run", "science", "services", "shop", "site", "social", "software", "solutions",
    "space", "store", "studio", "support", "systems", "tech", "technology", "today",
    "top", "trade", "travel", "vip", "website", "work", "works", "world", "wtf",
    "xxx", "xyz", "zip", "zone",
})  # fmt: skip
