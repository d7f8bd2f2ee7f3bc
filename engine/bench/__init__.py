"""`glasspool bench …`: what paging costs and buys on this machine; how a server bears a load."""
