"""The topics API over HTTP: logs with cursors and lease queues, under /v0."""
