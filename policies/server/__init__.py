"""The analyzer that carries rules into the engine."""
