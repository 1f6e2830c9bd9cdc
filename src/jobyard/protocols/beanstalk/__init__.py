"""The beanstalk protocol: every command of beanstalkd 1.13, its answers and its limits.

A tube is a queue; the word lives only here. `session` reads commands and answers them, `statistics`
lays out the YAML, `door` holds what all beanstalk connections share.
"""
