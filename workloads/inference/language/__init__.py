"""Language models: what is asked of them, how texts are generated, what is kept meanwhile."""
