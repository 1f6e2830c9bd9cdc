"""The benchmark: the yard and the servers it wants to replace, run in turn in one run.

`load.c` makes the load, the modules here start servers, collect figures and judge them. Nothing
in `src/` may import from here. What the figures mean, and what they do not, is in `README.md`.
"""
