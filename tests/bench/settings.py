"""Settings of a run, for tests: the defaults, but for what a test names."""

from engine.bench.serve_prompts import Endpoint
from engine.bench.serve_settings import ServeBenchSettings
from engine.workloads.named import Workload


def settings(**changed: object) -> ServeBenchSettings:
    options = {
        "url": "http://127.0.0.1:8000",
        "endpoint": Endpoint.COMPLETIONS,
        "model": None,
        "workload": Workload.FIXED,
        "input_len": 10,
        "output_len": 4,
        "range_ratio": 0.5,
        "sigma": 1.0,
        "trace": None,
        "scale_rate": 1.0,
        "scale_length": 1.0,
        "num_prompts": 5,
        "request_rate": None,
        "max_concurrency": None,
        "seed": 0,
        "ignore_eos": False,
        "timeout": 60.0,
    }
    return ServeBenchSettings(**{**options, **changed})
