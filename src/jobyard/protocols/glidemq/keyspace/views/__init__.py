"""What each key shows, computed from jobs when it is read."""
