"""The commands of bunqueue, by subject; `table` lists them all."""
