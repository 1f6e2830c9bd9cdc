"""The doors of a yard without a socket, each on a site in memory."""
