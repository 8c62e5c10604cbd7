"""Serves the components on AWS to programs in other languages (``pulumi package add``)."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # The engine runs this folder, whose files have the names of components: modules are found in
    # the environment alone.
    _HERE = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _HERE]

    from falaj.components import aws
    from falaj.components.hosting import components_of, host

    host(components_of(aws), "falaj-aws")
