"""Writing and reading records of topics."""
