"""Predictions for whole files: rows in, rows out, by a verified package, in parts that are kept.

A run reads its input twice. The first time nothing is computed: rows are counted, the file's
SHA-256 is taken, decimal marks are told apart, and what the model can't take is found, so that a
bad file is refused before an hour of work. The second time the model answers. What it has answered
is kept in parts of whole chunks, each written at once or not at all; a run that was killed goes on
behind the last part, and a part is of one input, one package and one set of options only.
"""
