"""Rebuilds a yard from its journal, and compacts the journal. Above all other engine folders."""
