"""Block pool, block tables and scheduler: plain Python, without torch, web or viewers."""
