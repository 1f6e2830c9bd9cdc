"""The simulator: whole lives of a yard in one thread, every chance of them drawn from one seed."""
