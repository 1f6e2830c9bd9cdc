"""Runs of topics and glide-mq clients on a disk that fills up, fails to read and rots."""
