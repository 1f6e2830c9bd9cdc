"""bunqueue's HTTP API, its WebSocket and its event stream."""
