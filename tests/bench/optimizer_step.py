"""One process that times the steps of AdamW over many parameters, and prints a line of JSON: `step`, the median of
seconds. The optimizer is torch's plain, foreach or fused one, or the plain one compiled.

Usage: optimizer_step.py PARAMETERS SECONDS eager|foreach|fused|flambeau|torch [THREADS]
"""

import json
import statistics
import sys
import time

import torch
from first_call import timed

SIZE = (32, 32)
UNTIMED = 10


def main() -> None:
    count, seconds, way = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(int(sys.argv[4]) if len(sys.argv) > 4 else 2)
    torch.manual_seed(0)
    parameters = [torch.nn.Parameter(torch.randn(SIZE)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}}.get(way, {})
    step = torch.optim.AdamW(parameters, lr=1e-3, **options).step
    if way == "flambeau":
        import flambeau

        step = flambeau.compile(step)
    elif way == "torch":
        step = torch.compile(step)
    for _ in range(UNTIMED):
        step()
    times = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        times.append(timed(step))
    print(json.dumps({"step": statistics.median(times)}))


if __name__ == "__main__":
    main()
