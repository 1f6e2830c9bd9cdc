"""What holds ready jobs back: settings of a queue, ordering groups, and the lists they wait in."""
