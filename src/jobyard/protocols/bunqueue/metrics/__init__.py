"""What bunqueue counts and how it shows it."""
