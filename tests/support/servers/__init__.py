"""Server processes, and clients that reach them through real sockets."""
