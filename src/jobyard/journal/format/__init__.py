"""The bytes on disk: records, batches, segments, checksums."""
