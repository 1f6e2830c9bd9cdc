"""Jobyard: one durable job queue that existing clients can use unchanged.

Holds the version and nothing that is slow to import. Must not know the subpackages.
"""

from typing import Final

__version__: Final = "0.1.0"
