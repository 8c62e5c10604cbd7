"""The cluster's own refusals: ValidatingAdmissionPolicies, made of the same facts as the packs.

A rule that is a demand on single fields of pods is one declaration, an entry of
`catalogue.pod_rules.POD_RULES` whose `admission` names the policy that refuses it
(``host-access``, ``names`` or ``pinning``): the pack's rule and the CEL are made of it. Other
rules of pods are checks in `workloads`, `placement` and `tenancy`; of what is not a pod, in
`storage`, `network`, `access` and `tenancy`. Each carries the id of the pack's rule, or
``cluster-…`` where no pack can judge it, as of who changes which marks of nodes (`node_repair`).
"""
