"""What a tenant's namespaces are made of: quotas, duties, isolation, admission."""
