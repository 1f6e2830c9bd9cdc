"""`python -m jobyard`: the same as the `jobyard` command."""

import sys

from jobyard.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
