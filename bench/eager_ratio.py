#!/usr/bin/env python3
"""Compares one rank of `copus train` with eager PyTorch (tests/train/torch_eager.py). Both train the same model with the same
batch, threads and device, in turns. Prints a table of tokens per second and their ratio (above 1: Copus is faster).

    bench/eager_ratio.py --copus build/bin/copus [--device cuda] [--rounds 3]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LLAMA = {"model_type": "llama", "vocab_size": 256, "max_position_embeddings": 1024, "tie_word_embeddings": False}
SMALL = [  # name, config, sequence length, sequences in a pass, passes in a step, steps
    ("llama 1M", ROOT / "catalog/models/tiny.json", 256, 8, 2, 8),
    ("llama 6M", LLAMA | {"num_hidden_layers": 6, "hidden_size": 256, "intermediate_size": 688,
                          "num_attention_heads": 8, "num_key_value_heads": 4}, 256, 8, 2, 4),
    ("gpt2 124M", ROOT / "catalog/models/gpt2-124m.json", 256, 2, 1, 3),
]
LARGE = [
    ("gpt2 124M", ROOT / "catalog/models/gpt2-124m.json", 1024, 32, 1, 30),
    ("llama 1.1B", LLAMA | {"num_hidden_layers": 22, "hidden_size": 2048, "intermediate_size": 5632, "vocab_size": 32000,
                            "num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 2048},
     2048, 8, 1, 15),
]


def python_with_torch():
    for name in ("python3", "/usr/bin/python3"):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", "import torch"], capture_output=True).returncode == 0:
            return path
    sys.exit("eager_ratio: no python3 here can import torch")


def copus(args, case, folder, threads, config):
    _, _, length, rows, passes, steps = case
    command = [args.copus, "train", "--model", config, "--device", args.device, "--seq-len", str(length), "--global-batch",
               str(rows * passes), "--plan", f"micro_batch={rows}", "--steps", str(steps + 2), "--run-dir", folder]
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads > 0 else {})
    subprocess.run(command, check=True, capture_output=True, env=environment)
    events = [json.loads(line) for line in (Path(folder) / "events.jsonl").read_text().splitlines()]
    times = [event["step_time_s"] for event in events if event["event"] == "step"][2:]
    return rows * passes * length / statistics.median(times)


def torch_eager(args, case, python, threads, config, *more):
    _, _, length, rows, passes, steps = case
    command = [python, ROOT / "tests/train/torch_eager.py", "--config", config, "--seq-len", str(length), "--micro-batch",
               str(rows), "--micro-batches", str(passes), "--steps", str(steps), "--threads", str(threads), "--device",
               args.device]
    command += more or (["--pure-bf16"] if args.device == "cuda" else [])
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads)} if threads > 0 else {})
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])["tokens_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copus", default=str(ROOT / "build/bin/copus"))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="models whose name contains this")
    args = parser.parse_args()
    python = python_with_torch()
    cores = len(os.sched_getaffinity(0))
    print(f"{'model':<12}{'threads':>8}{'copus tok/s':>14}{'PyTorch tok/s':>15}{'ratio':>8}   by round")
    for case in LARGE if args.device == "cuda" else SMALL:
        if args.only not in case[0]:
            continue
        for threads in [cores] if args.device == "cuda" or cores == 1 else [1, cores]:
            with tempfile.TemporaryDirectory() as folder:
                config = case[1]
                if isinstance(config, dict):
                    config = Path(folder) / "config.json"
                    config.write_text(json.dumps(case[1]))
                ours, theirs = [], []
                for i in range(args.rounds):
                    ours.append(copus(args, case, f"{folder}/{i}", threads, str(config)))
                    theirs.append(torch_eager(args, case, python, threads, str(config)))
            ratios = [a / b for a, b in zip(ours, theirs)]
            print(f"{case[0]:<12}{threads:>8}{statistics.median(ours):>14.0f}{statistics.median(theirs):>15.0f}"
                  f"{statistics.median(ratios):>8.2f}   {' '.join(f'{r:.2f}' for r in ratios)}", flush=True)


if __name__ == "__main__":
    main()
