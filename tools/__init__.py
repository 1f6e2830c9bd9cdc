"""Programs for those who work on Jobyard itself; no part of the package imports them."""
