"""The beanstalk protocol: every command of beanstalkd 1.13, its answers and its limits.

A tube is a queue; the word is used only here. `session` reads commands and answers them,
`statistics` formats the YAML, `door` holds the state that all beanstalk connections share.
"""
