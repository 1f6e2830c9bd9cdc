"""Runs with beanstalk clients: the model of the answers they should get."""
