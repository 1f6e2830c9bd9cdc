"""The only room with a clock, sockets, threads and signals.

The simulator cannot run this code, so it is as small as possible: loops, connections, the disk,
start and stop.
"""
