"""The glide-mq protocol: commands of a RESP server over the keys of queues.

`session` reads commands and runs them from `command_table`; `door` holds what all connections
share. A key is either a view of the jobs of a queue (`keyspace.views`) or stored as it was set
(`keyspace.stored`); commands do not know which. FCALL runs the functions in `functions`.
"""
