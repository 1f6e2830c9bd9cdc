"""Ordered and keyed collections of jobs: what makes finding, taking and listing them cheap."""
