"""From a journal to a yard, and the journal kept small. Above all other folders of the engine."""
