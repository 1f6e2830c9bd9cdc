"""Runs with beanstalk clients: what they should be answered."""
