"""The lab: allocators compared on lengths, and the arithmetic of capacity. No torch."""
