"""The glide-mq protocol: commands of a RESP server over the keys of queues.

`session` reads commands and runs them from the `table`, `door` holds what all connections share.
A key is either shown from the jobs of a queue or kept as it was set (`keys`, `side`); commands do
not know which. FCALL runs the table in `functions`.
"""
