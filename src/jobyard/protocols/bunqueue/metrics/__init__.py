"""Metrics of the bunqueue door: latency histograms and rates."""
