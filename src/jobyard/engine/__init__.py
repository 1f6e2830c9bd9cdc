"""What may happen to a job.

`yard` holds every table and every `apply_*`, which cannot fail and which recovery replays. The
verbs are plain functions by theme (`put`, `take`, `end`, `move`, `queues`, `tick`): each decides,
appends to the journal, applies. No clock, no randomness, no I/O: time comes in as an argument.
"""
