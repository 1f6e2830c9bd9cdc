"""RESP2 and RESP3, as Redis clients speak them."""
