"""What a job is: its states, its lease, its queue, and the indexes a queue is made of.

Knows nothing about bytes on a wire, records on a disk, or the clock: times are arguments.
"""
