"""Serves the components on AWS to programs in other languages (``pulumi package add``)."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The engine runs this folder: modules are found from where the distribution lies, not from
    # here, where files have the names of components.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

    import components.aws
    from components.hosting import components_of, host

    host(components_of(components.aws), "falaj-aws")
