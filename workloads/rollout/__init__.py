"""Whether a canary takes over: what two versions' servers measured, and the alias that says so."""
