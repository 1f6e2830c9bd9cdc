"""Values and commands that tests feed to what they test."""
