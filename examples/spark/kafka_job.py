"""A Structured Streaming job that was written for Kafka, moved to Jobyard by two lines.

Counts the page views of a topic by page and minute. Run it against `jobyard serve`:

    python examples/spark/kafka_job.py http://127.0.0.1:6790 clicks ./lake
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql.functions import approx_count_distinct, col, count, from_json, window
from pyspark.sql.functions import max as max_

url, topic, lake = sys.argv[1:4]
spark = SparkSession.builder.appName("page views").getOrCreate()

clicks = (
    spark.readStream
    .format("jobyard")    # with Kafka: "kafka"
    .option("url", url)   # with Kafka: "kafka.bootstrap.servers", and the brokers
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 100_000)
    .load()
)  # fmt: skip
views = (
    clicks.selectExpr("CAST(key AS STRING) AS user", "CAST(value AS STRING) AS json",
                      "offset", "timestamp")
    .select("*", from_json(col("json"), "page STRING, ms LONG").alias("view"))
    .withWatermark("timestamp", "10 minutes")
    .groupBy(window("timestamp", "1 minute"), "view.page")
    .agg(
        count("offset").alias("views"),
        approx_count_distinct("user").alias("users"),
        max_("view.ms").alias("slowest_ms"),
    )
)  # fmt: skip
query = (
    views.writeStream
    .outputMode("complete")
    .format("memory")
    .queryName("views")
    .option("checkpointLocation", f"{lake}/checkpoints/views")
    .trigger(availableNow=True)
    .start()
)  # fmt: skip
query.awaitTermination()
spark.table("views").orderBy("page").write.mode("overwrite").json(f"{lake}/views")
spark.table("views").orderBy("page").show(truncate=False)
