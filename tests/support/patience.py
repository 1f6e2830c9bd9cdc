"""How long a test waits for what must come.

Waiting costs nothing where it comes at once, so the bound is for a machine with ten other busy
programs, and says no more than that something never came. What must be quick is measured in
processor time or in work done, never in seconds that pass.
"""

from typing import Final

PATIENCE_S: Final = 60.0
