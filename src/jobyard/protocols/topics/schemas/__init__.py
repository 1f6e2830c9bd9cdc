"""JSON schemas of requests and answers, for the OpenAPI document."""
