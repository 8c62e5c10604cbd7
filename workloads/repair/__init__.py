"""Takes nodes with sick GPUs out of service, empties them, and brings them back when well.

A node goes through states that stand on it for everybody to read: quarantined (tainted, so that
nothing new comes), draining (its pods are evicted), drained, recovering, and back. The order is
that of NVIDIA's NVSentinel (quarantine, drain, remediate: https://docs.nvidia.com/nvsentinel/),
the brake that of Cluster API (``maxUnhealthy``:
https://cluster-api.sigs.k8s.io/tasks/automated-machine-management/healthchecking).

Nothing here resets a GPU or reboots a machine: a person does, or whatever looks after machines.
The modules: `settings`, what one may ask for; `states`, the decisions, as pure functions; `pods`,
who has to leave a node; `faults`, what GPUs report; `api`, the API server; `lease`, who leads;
`marks`, what stands on nodes; `watching`, metrics and the audit log; `controller`, all together.
"""
