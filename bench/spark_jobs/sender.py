"""A plain program that sends bodies from a Parquet file to a topic, in the chunks that Spark sends.

Prints a line when it is ready, and begins when its stdin ends. The bodies are JSON already and
are only joined: a program that also made them would be slower.
"""

import sys
from pathlib import Path

import pyarrow.parquet as pq

from jobyard.client import YardClient
from jobyard.client.calls import topic_path
from jobyard.spark.write.sending import CHUNK_ROWS


def main() -> None:
    """Send one file of the folder named on the command line."""
    folder, part, url, topic = sys.argv[1:]
    file = sorted(Path(folder).glob("*.parquet"))[int(part)]
    print("ready", flush=True)
    sys.stdin.read()
    with YardClient(url) as client:
        for batch in pq.ParquetFile(file).iter_batches(CHUNK_ROWS, columns=["value"]):
            records = ",".join([f'{{"data":{body}}}' for body in batch.column(0).to_pylist()])
            body = f'{{"strict":true,"records":[{records}]}}'
            client.send("POST", topic_path(topic), body.encode(), is_repeatable=False)


if __name__ == "__main__":
    main()
