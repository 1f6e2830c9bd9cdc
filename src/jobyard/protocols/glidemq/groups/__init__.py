"""Consumer groups: the workers of a queue, and subscriptions."""
