"""The `jobyard` command: turns the command line into a Config and one call into the server.

One file per subcommand or topic. Must not know how jobs are stored or protocols work. A wrong
command line gets a one-line error on stderr; the server's result becomes the exit code.
"""
