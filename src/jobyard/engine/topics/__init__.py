"""Queues used as topics: claims, routers, push streams. Above `jobs`, apart from `glidemq`."""
