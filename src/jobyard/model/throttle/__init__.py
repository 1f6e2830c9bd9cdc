"""Limits on taking ready jobs: queue settings, ordering groups, and the lists they wait in."""
