"""The report as one HTML file: without network, scripts from elsewhere, or need of any script."""
