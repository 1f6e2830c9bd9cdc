"""What a job is: its states, its lease, its queue, and the indexes a queue is made of.

Knows nothing of bytes on a wire, of records on a disk, or of time: times are numbers it is given.
"""
