"""The functions that FCALL runs; `table` lists them all."""
