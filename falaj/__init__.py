"""Falaj: AI infrastructure that stays in the United Arab Emirates.

One name for all of it, in a clone and where a wheel is installed: ``falaj.components.aws``,
``falaj.workloads.training``, and so on. In a clone the folders in here are links to those at the
top of the project; a wheel holds what they lead to.
"""

__version__ = "0.1.0"
