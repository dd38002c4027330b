#!/usr/bin/env python3
"""Trains the engine's architectures with ordinary PyTorch code on one device, as a baseline for the engine's speed.

    torch_eager.py --config llama.json --seq-len 256 --micro-batch 4 --steps 10

The code is fast in eager mode. It computes query, key and value in one product, and gate and up in one. It uses PyTorch's
attention, normalisation and fused optimizer if the version has them. It runs on PyTorch 1.13 and 2.x. Tokens are random. It
prints one line of JSON: the median step time after two steps of warm-up, tokens per second, and the loss of every step.
"""

import argparse
import contextlib
import inspect
import json
import math
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP_STEPS = 2


class Shape:
    """The shape of the model, from a Hugging Face config.json of gpt2, llama, mistral, qwen2 or qwen3."""

    def __init__(self, config):
        self.family = config["model_type"]
        self.gpt2 = self.family == "gpt2"
        if self.gpt2:
            self.layers, self.hidden, self.heads = config["n_layer"], config["n_embd"], config["n_head"]
            self.ffn = config.get("n_inner") or 4 * self.hidden
            self.max_positions = config.get("n_positions", 1024)
        elif self.family in ("llama", "mistral", "qwen2", "qwen3"):
            self.layers, self.hidden = config["num_hidden_layers"], config["hidden_size"]
            self.heads, self.ffn = config["num_attention_heads"], config["intermediate_size"]
            self.max_positions = config["max_position_embeddings"]
        else:
            raise SystemExit(f"model_type: got {self.family}; want gpt2, llama, mistral, qwen2 or qwen3")
        self.vocab = config["vocab_size"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or self.hidden // self.heads
        self.tied = config.get("tie_word_embeddings", self.gpt2)
        self.eps = config.get("layer_norm_epsilon", 1e-5) if self.gpt2 else config.get("rms_norm_eps", 1e-6)
        self.init_std = config.get("initializer_range", 0.02)
        biased = self.gpt2 or config.get("attention_bias", False)
        self.qkv_bias = biased or self.family == "qwen2"
        self.out_bias = biased
        self.mlp_bias = self.gpt2 or config.get("mlp_bias", False)
        self.qk_norm = self.family == "qwen3"
        self.rope_theta = config.get("rope_theta", 10000.0)
        self.rope_scaling = config.get("rope_scaling") or {}


class RMSNorm(nn.Module):
    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight, self.eps)
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def make_norm(shape, size=None):
    size = size or shape.hidden
    return nn.LayerNorm(size, eps=shape.eps) if shape.gpt2 else RMSNorm(size, shape.eps)


def rotary_frequencies(shape):
    plain = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    scaling = shape.rope_scaling
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        return plain
    if kind == "linear":
        return plain / scaling["factor"]
    if kind != "llama3":
        raise SystemExit(f"rope_scaling: got {kind}; want linear or llama3")
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    turns = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * plain / scaling["factor"] + smooth * plain


def rotate(x, cosines, sines):
    """x: [batch, length, heads, head_dim]."""
    cosines, sines = cosines.to(x.dtype), sines.to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
HAS_GQA = HAS_SDPA and "enable_gqa" in (F.scaled_dot_product_attention.__doc__ or "")


def causal_attention(q, k, v, mask):
    """q: [batch, length, heads, d]; k, v: [batch, length, kv_heads, d]. `mask` is used only without PyTorch's attention."""
    batch, length, heads, d = q.shape
    kv = k.shape[2]
    group = heads // kv
    if HAS_SDPA:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        options = {"is_causal": True}
        if group > 1 and HAS_GQA and q.dtype in (torch.bfloat16, torch.float16):
            options["enable_gqa"] = True
        elif group > 1:  # the fast FP32 kernels need one key head per query head
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, **options)
        return y.transpose(1, 2).reshape(batch, length, heads * d)
    # Stacks the queries of a key head, so that one product per key head is enough and keys are not copied `group` times.
    q = q.view(batch, length, kv, group, d).permute(0, 2, 3, 1, 4).reshape(batch * kv, group * length, d)
    k = k.permute(0, 2, 3, 1).reshape(batch * kv, d, length)
    v = v.transpose(1, 2).reshape(batch * kv, length, d)
    weights = torch.baddbmm(mask.to(q.dtype), q, k, alpha=1 / math.sqrt(d)).softmax(-1)
    y = torch.bmm(weights, v).view(batch, kv, group, length, d)
    return y.permute(0, 3, 1, 2, 4).reshape(batch, length, heads * d)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.qkv = nn.Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, bias=shape.qkv_bias)
        self.out = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=shape.out_bias)
        self.q_norm = RMSNorm(shape.head_dim, shape.eps) if shape.qk_norm else None
        self.k_norm = RMSNorm(shape.head_dim, shape.eps) if shape.qk_norm else None

    def forward(self, x, rope, mask):
        batch, length, _ = x.shape
        qkv = self.qkv(x).view(batch, length, self.heads + 2 * self.kv_heads, self.head_dim)
        if self.q_norm is not None:
            q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
            q, k = rotate(self.q_norm(q), *rope), rotate(self.k_norm(k), *rope)
        elif rope is not None:
            qk, v = qkv.split([self.heads + self.kv_heads, self.kv_heads], dim=2)
            q, k = rotate(qk, *rope).split([self.heads, self.kv_heads], dim=2)
        else:
            q, k, v = qkv.split([self.heads, self.kv_heads, self.kv_heads], dim=2)
        return self.out(causal_attention(q, k, v, mask))


class MLP(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gated = not shape.gpt2
        self.up = nn.Linear(shape.hidden, shape.ffn * (2 if self.gated else 1), bias=shape.mlp_bias)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=shape.mlp_bias)

    def forward(self, x):
        if not self.gated:
            return self.down(F.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Layer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention_norm, self.attention = make_norm(shape), Attention(shape)
        self.mlp_norm, self.mlp = make_norm(shape), MLP(shape)

    def forward(self, x, rope, mask):
        x = x + self.attention(self.attention_norm(x), rope, mask)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, shape, seq_len):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Embedding(shape.max_positions, shape.hidden) if shape.gpt2 else None
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.final_norm = make_norm(shape)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.tokens.weight
        self.rope = None
        if not shape.gpt2:
            angles = torch.outer(torch.arange(seq_len, dtype=torch.float64), rotary_frequencies(shape))[:, None, :]
            self.rope = (angles.cos().float(), angles.sin().float())
        self.mask = None
        if not HAS_SDPA:
            causal = torch.full((seq_len, seq_len), -math.inf).triu(1)
            self.mask = causal.repeat(shape.heads // shape.kv_heads, 1)
        self.initialise(shape)

    def initialise(self, shape):
        for name, parameter in self.named_parameters():
            if parameter.dim() > 1:
                residual = name.endswith(("attention.out.weight", "mlp.down.weight"))
                nn.init.normal_(parameter, 0, shape.init_std / (math.sqrt(2 * shape.layers) if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def _apply(self, function, *args):
        """Makes .to() move the tables too. They are not buffers, because .to(bf16) would then convert them to bf16."""
        super()._apply(function, *args)
        device = self.tokens.weight.device
        if self.rope is not None:
            self.rope = tuple(table.to(device) for table in self.rope)
        if self.mask is not None:
            self.mask = self.mask.to(device)
        return self

    def forward(self, tokens, targets):
        x = self.tokens(tokens)
        if self.positions is not None:
            x = x + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x, self.rope, self.mask)
        logits = self.head(self.final_norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def make_optimizer(parameters, lr):
    """Returns AdamW with weight decay on matrices only, in the fastest form that this PyTorch has for the device."""
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    known = inspect.signature(torch.optim.AdamW).parameters
    for option in ("fused", "foreach"):
        if option not in known:
            continue
        try:
            return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95), **{option: True})
        except RuntimeError:  # fused: not on this device
            pass
    return torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))


class Fp32Update:
    """Gradients and update for FP32 weights, with or without autocast."""

    def __init__(self, model, lr):
        self.parameters = list(model.parameters())
        self.optimizer = make_optimizer(self.parameters, lr)

    def after_backward(self):
        pass

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Bf16StateUpdate(Fp32Update):
    """Weights, gradients and moments are all bf16. This is fast, but loses small updates."""

    def __init__(self, model, lr):
        super().__init__(model.to(torch.bfloat16), lr)


class Bf16Update:
    """Weights are bf16. The optimizer works on FP32 copies, and gradients of micro-batches are summed in FP32."""

    def __init__(self, model, lr):
        self.masters = [p.detach().clone() for p in model.parameters()]
        self.parameters = list(model.to(torch.bfloat16).parameters())
        self.optimizer = make_optimizer(self.masters, lr)

    def after_backward(self):
        gradients = [p.grad for p in self.parameters]
        if self.masters[0].grad is None:
            for master, gradient in zip(self.masters, gradients):
                master.grad = gradient.float()
        else:
            torch._foreach_add_([m.grad for m in self.masters], gradients)
        for p in self.parameters:
            p.grad = None

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.masters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            if hasattr(torch, "_foreach_copy_"):
                torch._foreach_copy_(self.parameters, self.masters)
            else:
                for p, master in zip(self.parameters, self.masters):
                    p.copy_(master)


def train(args):
    shape = Shape(json.loads(Path(args.config).read_text()))
    if args.seq_len > shape.max_positions:
        raise SystemExit(f"--seq-len: got {args.seq_len}; want at most {shape.max_positions}, the model's positions")
    torch.manual_seed(1)
    model = Transformer(shape, args.seq_len)
    model = model.to(args.device)
    kind = Bf16StateUpdate if args.bf16_state else Bf16Update if args.pure_bf16 else Fp32Update
    update = kind(model, args.lr)
    autocast = contextlib.nullcontext
    if args.dtype == "bf16" and kind is Fp32Update:
        autocast = lambda: torch.autocast(args.device, torch.bfloat16)
    run = torch.compile(model, mode=args.compile_mode) if args.compile or args.compile_mode else model

    # Small tokens are more frequent than large ones, so that the model can learn something.
    generator = torch.Generator().manual_seed(2)
    steps = WARM_UP_STEPS + args.steps
    size = (steps, args.micro_batches, args.micro_batch, args.seq_len + 1)
    text = (torch.rand(size, generator=generator) ** 2 * shape.vocab).long().to(args.device)

    losses, times = [], []
    for step in range(steps):
        begin = time.perf_counter()
        total = torch.zeros((), device=args.device)
        for batch in text[step]:
            with autocast():
                loss = run(batch[:, :-1], batch[:, 1:]) / args.micro_batches
            loss.backward()
            update.after_backward()
            total += loss.detach()
        update.step()
        losses.append(total.item())  # waits for the loss, but not for the update
        if args.device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begin)
    median = statistics.median(times[WARM_UP_STEPS:])
    tokens = args.micro_batches * args.micro_batch * args.seq_len
    return {"step_time_s": median, "tokens_per_s": tokens / median, "losses": losses}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="a Hugging Face config.json")
    parser.add_argument("--seq-len", type=int, required=True)
    parser.add_argument("--micro-batch", type=int, default=1, help="sequences in one pass")
    parser.add_argument("--micro-batches", type=int, default=1, help="passes per step")
    parser.add_argument("--steps", type=int, default=10, help=f"measured steps, after {WARM_UP_STEPS} of warm-up")
    parser.add_argument("--threads", type=int, default=0, help="0: PyTorch's choice")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast, FP32 weights")
    parser.add_argument("--pure-bf16", action="store_true", help="bf16 weights, FP32 copies in the optimizer")
    parser.add_argument("--bf16-state", action="store_true", help="bf16 weights and moments, nothing in FP32")
    parser.add_argument("--compile", action="store_true", help="torch.compile (PyTorch 2)")
    parser.add_argument("--compile-mode", help="torch.compile with this mode, such as max-autotune-no-cudagraphs")
    parser.add_argument("--lr", type=float, default=3e-4)
    args = parser.parse_args()
    if (args.compile or args.compile_mode) and not hasattr(torch, "compile"):
        parser.error("--compile needs PyTorch 2")
    if args.threads > 0:
        torch.set_num_threads(args.threads)
    print(json.dumps(train(args)))


if __name__ == "__main__":
    main()
