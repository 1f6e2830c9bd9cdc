"""HTTP/1.1 for the protocols that use it: requests in, whole answers and streams out."""
