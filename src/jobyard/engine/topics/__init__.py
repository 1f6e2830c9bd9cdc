"""Queues used as topics: claims, routers, push streams. Above `jobs`, independent of `glidemq`."""
