"""Long-lived readers: watches and WebSocket connections."""
