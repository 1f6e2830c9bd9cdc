"""The yard and what it holds: names, timers, tasks, counters. The lowest folder of the engine."""
