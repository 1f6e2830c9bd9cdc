"""An archive and its yard as one topic for Spark, and the replay of an archive.

Which of the two a row is read from is decided where it is read: what was planned from the yard may
be archived, and gone from it, by then.
"""
