"""`make pipeline`: a server, four protocols, the pipeline, a fleet, an archive, and a report."""
