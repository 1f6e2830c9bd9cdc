"""Consumer groups that get every job and take none. Above `jobs`, below `topics` and `glidemq`."""
