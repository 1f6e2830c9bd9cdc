"""HTTP/1.1 under the protocols that speak it: requests in, whole answers and streams out."""
