"""HTTP/1.1, server-sent events and WebSocket frames."""
