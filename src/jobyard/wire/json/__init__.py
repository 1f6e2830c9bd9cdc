"""JSON, read and written without making objects of values that are only passed on."""
