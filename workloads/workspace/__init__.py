"""A notebook server for one person, which ends by itself.

JupyterLab on the loopback interface alone, by TLS 1.3 and with a token; see `server`. When it has
to end, `idleness` says.
"""
