"""Facts of Kubernetes that policy packs and the cluster's own admission judge by alike."""
