"""The part of the benchmark that runs in Spark's environment: reads, writes, streams.

Must not import the rest of the benchmark, whose packages are not installed there. It measures one
thing at a time and decides nothing: what is compared with what is in `bench/scenarios/spark.py`.
"""
