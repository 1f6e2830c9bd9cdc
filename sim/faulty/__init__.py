"""Runs of topics and glide-mq clients on a disk that is full, fails to read and rots."""
