"""Topics as Arrow, CSV or JSON lines."""
