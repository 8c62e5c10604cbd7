"""Federated learning: sites train on rows that stay with them, a coordinator averages models.

Flower (flwr 1.42) was weighed and not taken: it sends usage data to its makers unless told not to,
pins an older cryptography, and brings gRPC and, for its simulation, Ray; what is needed here, the
mean of tensors over HTTPS, is less than its configuration.
"""
