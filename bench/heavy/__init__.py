"""Heavy commands: what each is, how it is prepared, and the table of them all."""
