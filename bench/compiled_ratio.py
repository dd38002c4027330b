#!/usr/bin/env python3
"""Compares one rank of `copus train` on a GPU with PyTorch, eager and compiled (tests/train/torch_eager.py). Both train the
same model and batch in BF16, in turns. Prints tokens per second, ratios (above 1: Copus is faster) and MFU.

    bench/compiled_ratio.py --device cuda [--copus build/bin/copus] [--rounds 2] [--only 3b] [--autotune]

Both sides keep FP32 weights and moments, and compute in BF16. "BF16 alone" is compiled PyTorch with weights and moments in
BF16: it reads and writes less memory, but loses small updates.
"""

import argparse
import json
import statistics
import tempfile

import eager_ratio

MODELS = eager_ratio.ROOT / "bench/models"
CASES = [  # name, config, sequence length, sequences in a pass, passes in a step, steps
    ("124m", MODELS / "llama-124m.json", 1024, 32, 1, 30),
    ("1.1b", MODELS / "llama-1.1b.json", 2048, 8, 1, 15),
    ("3b", MODELS / "llama-3b.json", 4096, 2, 1, 12),
]
OTHERS = {
    "eager": ["--pure-bf16"],
    "compiled": ["--pure-bf16", "--compile"],
    "autotuned": ["--pure-bf16", "--compile-mode", "max-autotune-no-cudagraphs"],
    "BF16 alone": ["--bf16-state", "--compile"],
}


def flops_per_token(case):
    """Returns 6 FLOPs per weight of a product, plus attention over half of the positions (Chowdhery et al. 2022, appendix B)."""
    config = json.loads(case[1].read_text())
    hidden, layers, length = config["hidden_size"], config["num_hidden_layers"], case[2]
    weights = layers * (4 * hidden**2 + 3 * hidden * config["intermediate_size"]) + config["vocab_size"] * hidden
    return 6 * weights + 6 * layers * hidden * length


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--copus", default=str(eager_ratio.ROOT / "build/bin/copus"))
    parser.add_argument("--device", choices=["cuda"], default="cuda")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--autotune", action="store_true", help="also torch.compile with max-autotune, which takes minutes more")
    parser.add_argument("--peak", type=float, default=989.5, help="the GPU's dense BF16 rate, TFLOP/s, for MFU")
    args = parser.parse_args()
    python = eager_ratio.python_with_torch()
    others = {name: more for name, more in OTHERS.items() if args.autotune or name != "autotuned"}
    print(f"{'model':<6}{'copus tok/s':>12}{'MFU':>7}  " + "".join(f"{name:>20}" for name in others))
    for case in CASES:
        if args.only not in case[0]:
            continue
        rates = {name: [] for name in ("copus", *others)}
        with tempfile.TemporaryDirectory() as folder:
            for i in range(args.rounds):
                rates["copus"].append(eager_ratio.copus(args, case, f"{folder}/{i}", 0, str(case[1])))
                for name, more in others.items():
                    rates[name].append(eager_ratio.torch_eager(args, case, python, 0, str(case[1]), *more))
        ours = statistics.median(rates["copus"])
        mfu = ours * flops_per_token(case) / (args.peak * 1e12)
        cells = (f"{statistics.median(rates[name]):>13.0f} ({ours / statistics.median(rates[name]):.2f})" for name in others)
        print(f"{case[0]:<6}{ours:>12.0f}{mfu:>7.1%}  " + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
