"""Transactions: stage records, commit, abort, look."""
