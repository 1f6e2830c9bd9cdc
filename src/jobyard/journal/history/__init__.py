"""The journal as history: which part of it can be read, and its rows."""
