"""Parts of the engine as its tests use them: flows, topics, logs, crons, jobs of glide-mq."""
