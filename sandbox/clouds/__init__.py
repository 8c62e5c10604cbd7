"""What each cloud would say: identities, outputs, cross-checks, answers to queries."""
