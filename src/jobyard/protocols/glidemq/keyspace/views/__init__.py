"""What each key shows, worked out from jobs when it is read."""
