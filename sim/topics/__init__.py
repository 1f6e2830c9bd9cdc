"""Runs with clients of the topics API: logs, lease queues and routers over HTTP."""
