"""Topics: their settings, the records of a log, routers, and rows of history."""
