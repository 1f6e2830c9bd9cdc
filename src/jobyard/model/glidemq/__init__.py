"""What only glide-mq clients know: stored values, subscriptions, and fields of jobs."""
