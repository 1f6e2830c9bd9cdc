"""How long a test waits for something that must come.

Waiting costs nothing if it comes at once, so the limit is for a machine with ten other busy
programs, and only detects that something never came. Speed is measured in
processor time or in work done, never in elapsed seconds.
"""

from typing import Final

PATIENCE_S: Final = 60.0
