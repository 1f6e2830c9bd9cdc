"""The Redis commands that glide-mq uses, by type of value; `command_table` lists them all."""
