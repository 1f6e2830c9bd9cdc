"""What the OpenAPI document says of requests and answers."""
