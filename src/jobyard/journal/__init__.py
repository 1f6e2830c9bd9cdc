"""What is remembered, and when it is safe to say so.

Knows jobs and queues, never sockets or protocols; touches a disk only through `Storage`.
"""
