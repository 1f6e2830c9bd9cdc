"""The transcripts' language, and the stages that perform it."""
