"""Reading: what an option asks for as ranges of seqs, and each range as an export of the server.

Readers are made on the driver and run on executors. Must not know how rows are written.
"""
