"""Jobyard: one durable job queue that existing clients can talk to unchanged.

This file holds the version and nothing that costs time to import; the rooms below it are
imported by name. It must not know any of them.
"""

from typing import Final

__version__: Final = "0.1.0"
