"""Components of a Kubernetes cluster: its platform, its tenants, and the workloads they run."""
