"""Readers that stay: watches and WebSocket connections."""
