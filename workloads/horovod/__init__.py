"""Start of Horovod's processes on one or several machines, without ssh and without MPI.

Of the standard library alone and for Python 3.8 or newer: it runs in images of other teams.
"""
