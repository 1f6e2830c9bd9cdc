"""Programs for developers of Jobyard; no part of the package imports them."""
