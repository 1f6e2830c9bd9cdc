"""JSON, read and written without objects for what nobody looks into."""
