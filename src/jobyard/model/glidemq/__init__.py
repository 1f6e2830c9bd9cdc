"""State that only glide-mq clients use: stored values, subscriptions, and extra job fields."""
