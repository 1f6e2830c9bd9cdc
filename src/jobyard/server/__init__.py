"""The only room with a clock, sockets, threads and signals.

The simulator cannot run what is here, so it holds as little as it can: loops, connections, the
disk, the start and the stop.
"""
