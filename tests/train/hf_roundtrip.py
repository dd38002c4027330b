#!/usr/bin/env python3
"""Compares Copus with transformers: the same weights and tokens must give the same loss and the same logits.

    hf_roundtrip.py --bin build/bin --device cuda
    hf_roundtrip.py --bin build/bin --device cpu --families llama gpt2 --precisions fp32

This is not part of the test suite: it needs transformers (pip install transformers safetensors). For each family and
precision there are two checks:

export: copus trains a small model for some steps, evaluates it on held-out text, and exports it (`copus checkpoint export`).
    Then AutoModelForCausalLM.from_pretrained loads it and computes the loss on the same text.
import: transformers makes a model with random weights and saves it in several files. Copus imports it (`copus checkpoint
    import`). Then one step of copus over all sequences gives their mean loss, which must be that of transformers.

Each line has the loss of copus, of transformers in the same precision, and of transformers in FP32 from the same weights.
The first and the last must agree: to 1e-4 of the loss if copus ran in FP32, and to 2e-3 in BF16, which rounds activations.
"exchanged" is how far the loss moves if two matrices are exchanged. This must be more than the FP32 tolerance, or the
comparison would prove nothing.

The logits are those of random tokens (`dump_logits`). An error of logits is a root mean square over that of the logits of
transformers in FP32. If copus computed in FP32, the error over all logits is at most 1e-5.

In BF16 each position has its own error, because a trained model is undecided between two answers at a few positions, where
rounding decides. The limits come from the errors of transformers in BF16, of either of its attentions the larger one:
- The median error of copus is at most 1.5 times theirs, and so is the error that 95% of the positions do not exceed.
- Each place in the sequence has a median error over the sequences. The largest of these is at most 3 times theirs.
"""

import argparse
import json
import sys
import tempfile
import traceback
from pathlib import Path

import torch
import transformers

import hf_files

SEQ_LEN, SHARE, BATCH = 64, 0.25, 8
LLAMA = {
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "intermediate_size": 640,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "max_position_embeddings": 128,
    "vocab_size": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 4,
        "n_embd": 256,
        "n_head": 8,
        "n_positions": 128,
        "vocab_size": 256,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
    },
    "llama": {"model_type": "llama", **LLAMA},
    "mistral": {"model_type": "mistral", **LLAMA, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", **LLAMA, "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", **LLAMA, "head_dim": 64},
    "llama3": {
        "model_type": "llama",
        **LLAMA,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
}
# Two matrices of one shape. A loss that stays the same when they are exchanged would prove nothing.
EXCHANGED = {"gpt2": ("h.0.mlp.c_fc.weight", "h.1.mlp.c_fc.weight")}
EXCHANGED_ELSE = ("layers.0.self_attn.q_proj.weight", "layers.1.self_attn.q_proj.weight")
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-3}
LOGITS_FP32, LOGITS_BF16 = 1e-5, torch.tensor([1.5, 1.5, 3.0])
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


def load(folder, dtype, device, attention="sdpa"):
    """Loads the weights in `dtype`. Other tensors (rotary frequencies) keep the type that transformers chooses, which
    .to(dtype) would change."""
    version = tuple(int(part) for part in transformers.__version__.split(".")[:2])
    options = {"dtype" if version >= (4, 56) else "torch_dtype": dtype, "attn_implementation": attention}
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **options)
    info = info if isinstance(info, dict) else vars(info)
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(kind):
            raise AssertionError(f"transformers: {kind} of {folder}: {info[kind]}")
    return model.to(device).eval()


def loss_of(model, inputs, targets):
    """Returns the mean loss over all tokens, computed in FP32 from the logits."""
    device, total = next(model.parameters()).device, 0.0
    with torch.no_grad():
        for tokens, wanted in zip(inputs.split(16), targets.split(16)):
            logits = model(input_ids=tokens.to(device)).logits.float()
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.to(device).flatten(), reduction="sum")
            total += loss.item()
    return total / targets.numel()


def with_exchanged(model, family):
    """Exchanges two matrices of the model and returns it."""
    first, second = EXCHANGED.get(family, EXCHANGED_ELSE)
    parameters = dict(model.named_parameters())
    one, other = (next(p for name, p in parameters.items() if name.endswith(end)) for end in (first, second))
    with torch.no_grad():
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)
    return model


def judge(title, family, precision, ours, folder, inputs, targets, device):
    """Compares the loss `ours` with that of transformers. REQUIRES: the folder's weights have the precision of the run, so
    that all losses come from the same weights."""
    same = loss_of(load(folder, DTYPES[precision], device), inputs, targets)
    exact_model = load(folder, torch.float32, device)
    exact = loss_of(exact_model, inputs, targets)
    wrong = loss_of(with_exchanged(exact_model, family), inputs, targets)
    error, noticed = abs(ours - exact) / exact, abs(wrong - exact) / exact
    good = error <= TOLERANCE[precision] and noticed > 2 * TOLERANCE["fp32"]
    print(
        f"{'PASS' if good else 'FAIL'}  {title:6} {family:8} {precision}  copus {ours:.6f}  transformers {same:.6f}"
        f"  in fp32 {exact:.6f}  error {error:.1e} (at most {TOLERANCE[precision]:.0e})  exchanged {noticed:.1e}",
        flush=True,
    )
    return good


def logits_of(model, tokens):
    with torch.no_grad():
        return model(input_ids=tokens.to(next(model.parameters()).device)).logits.float().cpu()


def by_position(logits, exact):
    """Computes each position's error: its root mean square over that of all logits. Returns the median error, the 95%
    quantile, the largest median error of a place in the sequence, and the largest error."""
    errors = (logits - exact).square().mean(-1).sqrt() / exact.square().mean().sqrt()
    places = errors.quantile(0.5, dim=0).max()
    return torch.stack([errors.quantile(0.5), errors.quantile(0.95), places, errors.max()])


def judge_logits(title, family, precision, copus, checkpoint, folder):
    ours = copus.logits(checkpoint, precision, BATCH, SEQ_LEN)
    exact = logits_of(load(folder, torch.float32, copus.device), ours["tokens"])
    if precision == "fp32":
        error = hf_files.relative_error(ours["logits"], exact)
        good, figures = error <= LOGITS_FP32, f"error {error:.1e} (at most {LOGITS_FP32:.0e})"
    else:
        both = [load(folder, DTYPES[precision], copus.device, attention) for attention in ("sdpa", "eager")]
        usual = torch.stack([by_position(logits_of(model, ours["tokens"]), exact) for model in both]).amax(0)
        error = by_position(ours["logits"], exact)
        good = bool((error[:3] <= LOGITS_BF16 * usual[:3]).all())
        figures = "  ".join(
            f"{what} {mine:.1e}, transformers' {theirs:.1e}" for what, mine, theirs in zip(("median", "95%", "place", "largest"), error, usual)
        )
    print(f"{'PASS' if good else 'FAIL'}  {title:6} {family:8} {precision}  {exact.numel()} logits  {figures}", flush=True)
    return good


def check_export(copus, family, precision):
    folder = copus.folder
    (folder / "config.json").write_text(json.dumps(CONFIGS[family]))
    loss = copus.trained(
        "trained", "./config.json", "text", SEQ_LEN, SHARE, "--precision", precision, "--global-batch", 16,
        "--steps", 60, "--lr", 2e-3, "--warmup-samples", 80
    )  # fmt: skip
    copus("checkpoint", "export", "trained", "--out", "exported", "--dtype", precision, "--max-shard-size", "1MB")
    inputs, targets = (hf_files.held_out(t, SHARE) for t in hf_files.sequences(folder / "text", SEQ_LEN))
    good = judge("export", family, precision, loss, folder / "exported", inputs, targets, copus.device)
    return judge_logits("export", family, precision, copus, "trained/checkpoints/step-60", folder / "exported") and good


def check_import(copus, family, precision):
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**CONFIGS[family]))
    with torch.no_grad():  # initial weights would hide mistakes: biases are zero, norms one
        for name, parameter in model.named_parameters():
            spread = 0.1 if parameter.dim() == 1 else parameter.shape[-1] ** -0.5
            parameter.add_(torch.randn_like(parameter) * spread)
    folder = copus.folder
    model.to(DTYPES[precision]).save_pretrained(folder / "theirs", max_shard_size="1MB")
    copus("checkpoint", "import", "theirs", "--run-dir", "imported")
    good = judge_logits("import", family, precision, copus, "imported/checkpoints/step-0", folder / "theirs")
    inputs, targets = hf_files.sequences(folder / "text", SEQ_LEN)
    loss = copus.loss_of_import("imported", "./theirs", "text", SEQ_LEN, len(inputs), "--precision", precision)
    return judge("import", family, precision, loss, folder / "theirs", inputs, targets, copus.device) and good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True, type=lambda path: Path(path).resolve(), help="folder of the programs")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--families", nargs="+", default=list(CONFIGS), choices=list(CONFIGS))
    parser.add_argument("--precisions", nargs="+", default=list(DTYPES), choices=list(DTYPES))
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {args.device}")
    good = True
    for family in args.families:
        for precision in args.precisions:
            for check in (check_export, check_import):
                with tempfile.TemporaryDirectory(prefix="copus_hf_") as folder:
                    copus = hf_files.Copus(args.bin / "copus", folder, args.device)
                    hf_files.write_text(copus.folder / "text", size=16000)
                    try:
                        good = check(copus, family, precision) and good
                    except Exception as failed:  # the other checks still run
                        print(f"FAIL  {check.__name__} {family} {precision}: {failed}")
                        traceback.print_exc()
                        good = False
    print("PASS" if good else "FAIL")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
