"""The journal as history: which part can be read, and its rows."""
