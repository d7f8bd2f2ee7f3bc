"""Colours: Glasspool's own palette, in its variant for dark pages, Grafana's default.

The same state has the same colour here and on Glasspool's dashboard.
"""

FREE = "#2A2F38"
USED = "#1A80FF"
CACHED = "#255983"
SHARED = "#FCE67E"
COPIED = "#FEA3FF"
PREEMPTED = "#FA2811"

FINE = USED
WATCH = SHARED
BAD = PREEMPTED
