"""Verbs that only glide-mq has. Above `jobs`, independent of `topics`."""
