"""Verbs that only glide-mq has. Above `jobs`, apart from `topics`."""
