"""Spark as a fleet of workers: a stream of claims, a sink that ends runs, and `work` over both.

Each micro-batch is one claim set of the server, and each commit one transaction of it. Knows the
packages below, `read` and `write`, and no other part of the pipeline.
"""
