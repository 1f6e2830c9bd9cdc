"""Exports of logs and of the history as Arrow streams."""
