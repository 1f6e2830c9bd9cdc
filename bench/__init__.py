"""The benchmark: Jobyard and the servers it aims to replace, measured in turn in one run.

`load.c` makes the load; the modules here start servers, collect figures and judge them. Nothing
in `src/` may import from here. `README.md` explains what the figures mean and what they do not.
"""
