"""Runs with glide-mq clients: their model, their commands over RESP, their connections."""
