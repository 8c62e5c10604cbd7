"""The page of ``falaj open``: a served model on one machine, looked at and tried in a browser."""
