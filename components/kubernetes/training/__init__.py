"""What training jobs, sweeps and federated training in a cluster are rendered from."""
