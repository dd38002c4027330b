#!/usr/bin/env python3
"""Checks the engine's loss and gradients against definitions of the architectures, in double precision.

    reference.py --tool dump_gradients CONFIG.json…             compare; exit 1 when an error is over the tolerance
    reference.py --tool dump_gradients --selftest CONFIG.json…  check that wrong definitions are noticed

The tool writes the engine's FP32 weights, tokens, loss and gradients. This program computes the loss and the gradients from
the config and those weights, with elementary operations, in float64. It prints the errors of the same code in float32 beside
the engine's errors, to show the effect of rounding alone.

The error of a tensor is max|a - b| / max|b|. The printed figure is the largest error of a tensor over the layers. A gradient
that is zero by symmetry is compared with the model's largest gradient. An example is a key's bias without rotary positions,
which moves all scores of a query by the same amount.
"""

import argparse
import json
import math
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
import torch

TOLERANCE = 1e-5
SEQ_LEN, BATCH, SEED = 33, 3, 20240607


# --- The parts of the architectures. The self-test replaces them by name, one at a time, by wrong ones.


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + eps) * weight + bias


def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def final_norm(x, norm):
    return norm(x)


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + torch.exp(-x))


def gated(gate, up):
    return silu(gate) * up


def llama3_scaled(frequency, scaling):
    """Scales a frequency as Llama 3.1 does: stretches long wavelengths, keeps short ones, interpolates between them."""
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    wavelength = 2 * math.pi / frequency
    if wavelength < original / high:
        return frequency
    if wavelength > original / low:
        return frequency / factor
    smooth = (original / wavelength - low) / (high - low)
    return (1 - smooth) * frequency / factor + smooth * frequency


def frequencies(head_dim, theta, scaling):
    plain = [1 / theta ** (i / head_dim) for i in range(0, head_dim, 2)]
    if scaling is None:
        return plain
    if scaling["rope_type"] == "linear":
        return [f / scaling["factor"] for f in plain]
    assert scaling["rope_type"] == "llama3", scaling
    return [llama3_scaled(f, scaling) for f in plain]


def positions_of(length):
    return torch.arange(length, dtype=torch.float64)


def rotate_half(x):
    """Returns the partner of each element in its plane of rotation: element i rotates with element i + head_dim/2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat([-second, first], dim=-1)


def spread_angles(angles):
    return torch.cat([angles, angles], dim=-1)


def rotary(x, turning):
    """x: [batch, heads, length, head_dim]; turning: radians per position."""
    angles = spread_angles(torch.outer(positions_of(x.shape[2]), torch.tensor(turning, dtype=torch.float64)))
    return x * angles.cos().to(x.dtype) + rotate_half(x) * angles.sin().to(x.dtype)


def normed_and_rotated(x, norm, turn):
    return turn(norm(x))


def query_key_norms(q_norm, k_norm):
    return q_norm, k_norm


def visible(length):
    """visible[i, j]: may position i look at position j?"""
    return torch.ones(length, length, dtype=torch.bool).tril()


def for_every_query_head(x, heads):
    """Consecutive query heads share a key and value head."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def score_scale(head_dim):
    return 1 / math.sqrt(head_dim)


def attend(q, k, v):
    scores = q @ k.transpose(-1, -2) * score_scale(q.shape[-1])
    scores = scores.masked_fill(~visible(q.shape[2]), -math.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return weights / weights.sum(-1, keepdim=True) @ v


def mean_negative_log_likelihood(logits, targets):
    log_probabilities = logits - torch.logsumexp(logits, -1, keepdim=True)
    return -log_probabilities.gather(-1, targets.unsqueeze(-1)).mean()


# --- The models. `w` holds the weights by name.


def linear(x, w, name):
    y = x @ w[name + ".weight"].T
    return y + w[name + ".bias"] if name + ".bias" in w else y


def heads_of(x, head_dim):
    batch, length, width = x.shape
    return x.view(batch, length, width // head_dim, head_dim).transpose(1, 2)


def joined(x):
    return x.transpose(1, 2).flatten(2)


def gpt2_logits(config, w, tokens):
    eps = config.get("layer_norm_epsilon", 1e-5)
    head_dim = config["n_embd"] // config["n_head"]

    def norm(x, name):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"], eps)

    x = w["embed.tokens.weight"][tokens] + w["embed.positions.weight"][positions_of(tokens.shape[1]).long()]
    for layer in range(config["n_layer"]):
        at = f"layers.{layer}."
        h = norm(x, at + "attention_norm")
        q, k, v = (heads_of(linear(h, w, at + "attention." + part), head_dim) for part in "qkv")
        x = x + linear(joined(attend(q, k, v)), w, at + "attention.out")
        h = norm(x, at + "mlp_norm")
        x = x + linear(gelu_new(linear(h, w, at + "mlp.up")), w, at + "mlp.down")
    x = final_norm(x, lambda y: norm(y, "final_norm"))
    return x @ w["embed.tokens.weight"].T


def llama_logits(config, w, tokens):
    eps = config.get("rms_norm_eps", 1e-6)
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", config["hidden_size"] // heads)
    turning = frequencies(head_dim, config["rope_theta"], config.get("rope_scaling"))
    has_qk_norm = config["model_type"] == "qwen3"

    def norm(x, name):
        return rms_norm(x, w[name + ".weight"], eps)

    x = w["embed.tokens.weight"][tokens]
    for layer in range(config["num_hidden_layers"]):
        at = f"layers.{layer}."
        h = norm(x, at + "attention_norm")
        q, k, v = (heads_of(linear(h, w, at + "attention." + part), head_dim) for part in "qkv")
        q_norm = k_norm = lambda y: y
        if has_qk_norm:
            q_norm, k_norm = query_key_norms(
                lambda y: norm(y, at + "attention.q_norm"), lambda y: norm(y, at + "attention.k_norm")
            )
        q, k = (normed_and_rotated(y, f, lambda z: rotary(z, turning)) for y, f in ((q, q_norm), (k, k_norm)))
        mixed = attend(q, for_every_query_head(k, heads), for_every_query_head(v, heads))
        x = x + linear(joined(mixed), w, at + "attention.out")
        h = norm(x, at + "mlp_norm")
        x = x + linear(gated(linear(h, w, at + "mlp.gate"), linear(h, w, at + "mlp.up")), w, at + "mlp.down")
    x = final_norm(x, lambda y: norm(y, "final_norm"))
    head = w["embed.tokens.weight" if config.get("tie_word_embeddings", False) else "head.weight"]
    return x @ head.T


LOGITS = {"gpt2": gpt2_logits, **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), llama_logits)}


def loss_of(config, w, tokens, targets):
    return mean_negative_log_likelihood(LOGITS[config["model_type"]](config, w, tokens), targets)


# --- The comparison.


def read_safetensors(path):
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    types = {"F32": numpy.dtype("<f4"), "I64": numpy.dtype("<i8")}
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        flat = numpy.frombuffer(data[begin:end], dtype=types[entry["dtype"]])
        tensors[name] = torch.from_numpy(flat.reshape(entry["shape"]).copy())
    return tensors


def engine_dump(tool, config):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([tool, config, str(SEQ_LEN), str(BATCH), str(SEED), folder], check=True)
        return read_safetensors(Path(folder) / "dump.safetensors")


def named(tensors, prefix):
    return {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}


def reference(config, dump, dtype):
    """Returns the loss, and the gradients by name; None for a tensor that the model does not use."""
    weights = {name: t.to(dtype).requires_grad_() for name, t in named(dump, "weight/").items()}
    loss = loss_of(config, weights, dump["tokens"], dump["targets"])
    gradients = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return loss.item(), dict(zip(weights, gradients))


def gradient_errors(gradients, exact):
    """Returns name -> (error of the largest element, error of the norm)."""
    largest = max(g.abs().max().item() for g in exact.values() if g is not None)
    errors = {}
    for name, truth in exact.items():
        if truth is None:
            errors[name] = (math.inf, math.inf)
            continue
        apart = gradients[name].double() - truth
        scale, norm = truth.abs().max().item(), truth.norm().item()
        if scale < 1e-12 * largest:
            scale, norm = largest, largest * math.sqrt(truth.numel())
        errors[name] = (apart.abs().max().item() / scale, apart.norm().item() / norm)
    return errors


def worst(values):
    """Returns the largest value. NaN counts as larger than all numbers."""
    return max(values, key=lambda v: math.inf if math.isnan(v) else v)


def by_group(errors):
    groups = {}
    for name, pair in errors.items():
        groups.setdefault(re.sub(r"^layers\.\d+", "layers.*", name), []).append(pair)
    return {name: [worst(column) for column in zip(*pairs)] for name, pairs in groups.items()}


def compare(config, dump):
    """Returns the error of the engine's loss, the worst error of its gradients, and the lines to print."""
    loss, exact = reference(config, dump, torch.float64)
    loss32, gradients32 = reference(config, dump, torch.float32)
    loss_error = abs(dump["loss"].item() - loss) / abs(loss)
    groups = by_group(gradient_errors(named(dump, "gradient/"), exact))
    groups32 = by_group(gradient_errors(gradients32, exact))
    lines = [f"{'':34} {'largest':>9} {'norm':>9} {'float32':>9}"]
    lines.append(f"{'loss':34} {loss_error:9.1e} {'':9} {abs(loss32 - loss) / abs(loss):9.1e}   {loss:.6f}")
    for name in sorted(groups):
        lines.append(f"{name:34} {groups[name][0]:9.1e} {groups[name][1]:9.1e} {groups32[name][0]:9.1e}")
    return loss_error, worst(group[0] for group in groups.values()), lines


def check(tool, path):
    config = json.loads(Path(path).read_text())
    loss_error, gradient_error, lines = compare(config, engine_dump(tool, path))
    good = loss_error <= TOLERANCE and gradient_error <= TOLERANCE
    print(*lines, sep="\n")
    print(
        f"{'ok' if good else 'FAILED'}: {Path(path).stem}: loss {loss_error:.1e}, gradients {gradient_error:.1e},"
        f" tolerance {TOLERANCE:.0e}"
    )
    return good


# --- The self-test: a title, the models in which the mistake makes a difference, the replaced function, and the wrong one.

ROTARY = {"llama", "qwen3", "llama3_rope"}
ALL = ROTARY | {"gpt2"}
MISTAKES = [
    ("rope turns backwards", ROTARY, "rotate_half", lambda x: torch.cat([x.chunk(2, -1)[1], -x.chunk(2, -1)[0]], -1)),
    ("rope pairs neighbours", ROTARY, "rotate_half",
     lambda x: torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)),
    ("rope angles of neighbours", ROTARY, "spread_angles", lambda a: a.repeat_interleave(2, -1)),
    ("rope without scaling", {"llama3_rope"}, "llama3_scaled", lambda f, s: f),
    ("rope all stretched", {"llama3_rope"}, "llama3_scaled", lambda f, s: f / s["factor"]),
    ("rope before the q and k norms", {"qwen3"}, "normed_and_rotated", lambda x, norm, turn: norm(turn(x))),
    ("q and k norms exchanged", {"qwen3"}, "query_key_norms", lambda q_norm, k_norm: (k_norm, q_norm)),
    ("no q and k norms", {"qwen3"}, "query_key_norms", lambda q_norm, k_norm: (lambda x: x, lambda x: x)),
    # Not for rotary positions: they are relative, so a shift of all positions changes nothing.
    ("positions from one", {"gpt2"}, "positions_of", lambda n: torch.arange(1, n + 1, dtype=torch.float64)),
    ("positions twice as far apart", ROTARY, "positions_of", lambda n: 2 * torch.arange(n, dtype=torch.float64)),
    ("mask shows the next token", ALL, "visible", lambda n: torch.ones(n, n, dtype=torch.bool).tril(1)),
    ("no mask", ALL, "visible", lambda n: torch.ones(n, n, dtype=torch.bool)),
    ("scores not scaled", ALL, "score_scale", lambda d: 1.0),
    ("key heads dealt out in turn", ROTARY, "for_every_query_head", lambda x, n: x.repeat(1, n // x.shape[1], 1, 1)),
    ("gate and up exchanged", ROTARY, "gated", lambda gate, up: silu(up) * gate),
    ("exact gelu", {"gpt2"}, "gelu_new", torch.nn.functional.gelu),
    ("variance of n - 1", {"gpt2"}, "layer_norm",
     lambda x, w, b, eps: (x - x.mean(-1, True)) / torch.sqrt(x.var(-1, keepdim=True) + eps) * w + b),
    ("no epsilon", ROTARY, "rms_norm", lambda x, w, eps: x / torch.sqrt((x * x).mean(-1, keepdim=True)) * w),
    ("no final norm", ALL, "final_norm", lambda x, norm: x),
]  # fmt: skip


def selftest(tool, paths):
    """Checks that every mistake pushes the loss or the gradients over the tolerance, in every model that it affects."""
    dumps = {Path(path).stem: (json.loads(Path(path).read_text()), engine_dump(tool, path)) for path in paths}
    good = True
    for title, models, function, wrong in MISTAKES:
        for model in sorted(models & dumps.keys()):
            right = globals()[function]
            globals()[function] = wrong
            try:
                loss_error, gradient_error, _ = compare(*dumps[model])
            finally:
                globals()[function] = right
            noticed = not (loss_error <= TOLERANCE and gradient_error <= TOLERANCE)
            good = good and noticed
            verdict = "noticed" if noticed else "NOT NOTICED"
            print(f"{title:32} {model:12} loss {loss_error:.1e}, gradients {gradient_error:.1e}: {verdict}")
    for model, (config, dump) in sorted(dumps.items()):
        loss_error, gradient_error, _ = compare(config, dump)
        good = good and loss_error <= TOLERANCE and gradient_error <= TOLERANCE
    print(f"{'ok' if good else 'FAILED'}: self-test")
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", required=True, help="the program dump_gradients")
    parser.add_argument("--selftest", action="store_true", help="try wrong definitions: each must be noticed")
    parser.add_argument("configs", nargs="+", metavar="CONFIG.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.selftest:
        return 0 if selftest(args.tool, args.configs) else 1
    return 0 if all([check(args.tool, path) for path in args.configs]) else 1


if __name__ == "__main__":
    sys.exit(main())
