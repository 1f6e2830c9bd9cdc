"""Tables on disk about the lives of jobs: what they are, where they lie, and how they change.

A lake is a folder that programs other than Jobyard read: pyarrow, DuckDB, Spark, pandas. Nothing
here knows Spark or needs Java; the pipeline in `spark/pipeline` fills the tables, and the report
is made from them.
"""
