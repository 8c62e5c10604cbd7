"""Start of Horovod's processes on one or several machines, without ssh and without MPI.

Of the standard library alone and for Python 3.8 or newer: it runs in images of other teams.

Tried with Horovod 0.28.1 and PyTorch 2.15 on processors, two machines of two processes: training,
process sets, Horovod ended and begun anew, a killed process (1 by its peers, 74 by both machines),
and a stop of one machine, which ended all four with 75 and a checkpoint.
"""
