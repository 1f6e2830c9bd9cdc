"""Everything that can happen to a job.

`state.yard` holds every table and every `apply_*`, which cannot fail and which recovery replays.
The verbs are plain functions by theme (`jobs.put`, `take`, `finish`, `move`, `queues`, `tick`):
each decides, appends to the journal, and applies. No clock, no randomness, no I/O: time is an
argument.
"""
