"""Rules of residency, encryption, zero trust, Kubernetes and governance, and the packs of them."""
