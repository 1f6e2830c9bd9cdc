"""The commands of Redis that glide-mq uses, by type of value; `table` lists them all."""
