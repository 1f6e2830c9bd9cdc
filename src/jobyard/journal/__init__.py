"""The durable record of all changes, and when it is safe to reply that they are made.

Knows jobs and queues, never sockets or protocols; accesses a disk only through `Storage`.
"""
