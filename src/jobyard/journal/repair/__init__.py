"""What can be saved of a damaged journal."""
