"""Topics, routers and health."""
