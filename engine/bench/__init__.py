"""`glasspool bench …`: what paging costs, and what it buys, measured on this machine."""
