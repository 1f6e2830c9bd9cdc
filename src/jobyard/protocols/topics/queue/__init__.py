"""Topics as queues: claim, acknowledge, extend."""
