"""The lab: allocators compared on lengths, and the arithmetic of capacity. No torch.

    from engine.lab import LabSettings, default_sample, lab_requests, run_all, static_usage

    sample = default_sample()                        # 2,000 lengths, 730,840 tokens
    settings = LabSettings(max_model_len=4096, block_size=16)
    for usage in static_usage(sample.totals, settings):      # all lengths stored at once
        usage.kind, usage.stored, usage.taken, usage.utilisation, usage.wasted_per_sequence
    requests = lab_requests(sample.lengths[:400], every=5.0, seed=0)
    for run in run_all(requests, 16_384, settings):          # arrivals and departures in time
        run.kind, run.mean, run.refused_with_free, run.moments[30].address_map()

Lengths are tokens whose KV is stored; memory is counted in slots, room for one token each.
"""

from engine.core.config import ConfigError
from engine.lab.allocators import Kind, LabSettings, make_allocator
from engine.lab.attention_times import Measured, read_attention
from engine.lab.dynamic import DynamicRun, LabRequest, lab_requests, run_all, run_allocator
from engine.lab.kv_shape import SHAPES, KvShape
from engine.lab.moment import Account, Moment, Segment, Use
from engine.lab.samples import Sample, default_sample, read_lengths
from engine.lab.static import StaticUsage, static_usage
from engine.lab.sweep import SweepPoint, block_size_sweep

__all__ = [
    "SHAPES",
    "Account",
    "ConfigError",
    "DynamicRun",
    "Kind",
    "KvShape",
    "LabRequest",
    "LabSettings",
    "Measured",
    "Moment",
    "Sample",
    "Segment",
    "StaticUsage",
    "SweepPoint",
    "Use",
    "block_size_sweep",
    "default_sample",
    "lab_requests",
    "make_allocator",
    "read_attention",
    "read_lengths",
    "run_all",
    "run_allocator",
    "static_usage",
]
