"""Writing: rows as records of topics and jobs of queues, staged by tasks and committed once.

Must not know how tables are read.
"""
