"""The verbs of logs: append, read, trim, delete. Above `state`."""
