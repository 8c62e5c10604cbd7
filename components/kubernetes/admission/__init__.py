"""The cluster's own refusals: ValidatingAdmissionPolicies, made of the same facts as the packs."""
