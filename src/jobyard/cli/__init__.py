"""The `jobyard` command: from words typed by a user to a Config and one call into the server.

One file per noun. Nothing here knows how a job is kept or a protocol spoken. What is wrong with
the words is said in one line on stderr; what the server answers becomes the exit code.
"""
