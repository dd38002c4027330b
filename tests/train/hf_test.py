#!/usr/bin/env python3
"""Tests `copus checkpoint export` and `import` against the definitions of the architectures in reference.py.

    hf_test.py --bin build/bin/copus [CLASS[.TEST]]

This file states the names, transpositions and fused matrices of transformers again, independently of the engine.
"""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import torch

import hf_files
import reference

HERE = Path(__file__).resolve().parent
PROGRAM = HERE.parents[1] / "build" / "bin" / "copus"
SEQ_LEN, SHARE = 32, 0.25
TOLERANCE = 1e-5  # FP32 against FP64
LOGITS_TOLERANCE = {"fp32": 1e-5, "bf16": 1e-2}  # BF16 rounds each activation to 2e-3

LAYER = {
    "input_layernorm": "attention_norm",
    "self_attn.q_proj": "attention.q",
    "self_attn.k_proj": "attention.k",
    "self_attn.v_proj": "attention.v",
    "self_attn.o_proj": "attention.out",
    "self_attn.q_norm": "attention.q_norm",
    "self_attn.k_norm": "attention.k_norm",
    "post_attention_layernorm": "mlp_norm",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
}
GPT2_LAYER = {
    "ln_1": "attention_norm",
    "attn.c_proj": "attention.out",
    "ln_2": "mlp_norm",
    "mlp.c_fc": "mlp.up",
    "mlp.c_proj": "mlp.down",
}


def config_of(family):
    base = json.loads((HERE / ("gpt2.json" if family == "gpt2" else "llama.json")).read_text())
    if family == "qwen3":
        base = json.loads((HERE / "qwen3.json").read_text())
    if family == "tied":
        return json.loads((HERE / "llama3_rope.json").read_text())
    # The number of hidden units is even, so that two ranks can share them. The vocabulary stays odd.
    even = {"n_inner": 202} if family == "gpt2" else {"intermediate_size": 132}
    return {**base, **even, "model_type": family, "sliding_window": None}


FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "tied"]


def of_reference(config, tensors):
    """Returns transformers' weights under the names of reference.py."""
    w = {}
    if config["model_type"] == "gpt2":
        w["embed.tokens.weight"] = tensors["transformer.wte.weight"]
        w["embed.positions.weight"] = tensors["transformer.wpe.weight"]
        for field in ("weight", "bias"):
            w[f"final_norm.{field}"] = tensors[f"transformer.ln_f.{field}"]
            for i in range(config["n_layer"]):
                at = f"transformer.h.{i}."
                for theirs, ours in GPT2_LAYER.items():
                    w[f"layers.{i}.{ours}.{field}"] = tensors[f"{at}{theirs}.{field}"].t()
                fused = tensors[f"{at}attn.c_attn.{field}"]  # x @ weight + bias, then split in three
                for part, value in zip("qkv", fused.split(config["n_embd"], dim=-1)):
                    w[f"layers.{i}.attention.{part}.{field}"] = value.t()
        return w
    w["embed.tokens.weight"] = tensors["model.embed_tokens.weight"]
    w["final_norm.weight"] = tensors["model.norm.weight"]
    if not config["tie_word_embeddings"]:
        w["head.weight"] = tensors["lm_head.weight"]
    for i in range(config["num_hidden_layers"]):
        for theirs, ours in LAYER.items():
            for field in ("weight", "bias"):
                name = f"model.layers.{i}.{theirs}.{field}"
                if name in tensors:
                    w[f"layers.{i}.{ours}.{field}"] = tensors[name]
    return w


def loss_of(config, tensors, inputs, targets):
    weights = {name: t.double() for name, t in of_reference(config, tensors).items()}
    return reference.loss_of(config, weights, inputs, targets).item()


def scattered(tensors):
    """Returns random weights with which every tensor matters: norms near one, matrices of order 1 / sqrt(width)."""
    torch.manual_seed(7)
    out = {}
    for name, tensor in tensors.items():
        noise = torch.randn(tensor.shape)
        is_scale = tensor.dim() == 1 and name.endswith("weight")
        out[name] = 1 + 0.2 * noise if is_scale else noise * (0.2 if tensor.dim() == 1 else tensor.shape[-1] ** -0.5)
    return out


class HuggingFace(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="copus_hf_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.copus = hf_files.Copus(PROGRAM, self.folder)
        hf_files.write_text(self.folder / "text")

    def trained(self, family, *args):
        (self.folder / "config.json").write_text(json.dumps(config_of(family)))
        return self.copus.trained(
            "run", "./config.json", "text", SEQ_LEN, SHARE, "--global-batch", 8, "--lr", 3e-3, "--steps", 8, *args
        )

    def exported(self, run, name, *args):
        self.copus("checkpoint", "export", run, "--out", name, *args)
        return hf_files.read_folder(self.folder / name)

    def assert_close(self, got, want):
        self.assertLess(abs(got - want) / want, TOLERANCE, f"{got} against {want}")

    def test_exported_weights_have_the_loss_of_the_run(self):
        inputs, targets = (hf_files.held_out(t, SHARE) for t in hf_files.sequences(self.folder / "text", SEQ_LEN))
        for family in FAMILIES:
            with self.subTest(family):
                layout = ("--ranks", 2, "--plan", "tp=2") if family in ("gpt2", "llama") else ()
                loss = self.trained(family, *layout)
                config, tensors = self.exported("run", "out", "--dtype", "fp32")
                self.assert_close(loss, loss_of(config, tensors, inputs, targets))
                for folder in ("run", "out"):
                    shutil.rmtree(self.folder / folder)

    def test_exported_weights_have_the_logits_of_the_engine(self):
        for family in FAMILIES:
            for precision in ("fp32", "bf16"):
                with self.subTest(family, precision=precision):
                    self.trained(family, "--precision", precision)
                    config, tensors = self.exported("run", "out", "--dtype", precision)
                    dump = self.copus.logits("run/checkpoints/step-8", precision, 4, SEQ_LEN)
                    weights = {name: t.double() for name, t in of_reference(config, tensors).items()}
                    exact = reference.LOGITS[config["model_type"]](config, weights, dump["tokens"])
                    error = hf_files.relative_error(dump["logits"], exact)
                    self.assertLess(error, LOGITS_TOLERANCE[precision])
                    weights["embed.tokens.weight"] = weights["embed.tokens.weight"].flip(0)
                    wrong = reference.LOGITS[config["model_type"]](config, weights, dump["tokens"])
                    self.assertGreater(hf_files.relative_error(wrong, exact), 0.1, "other weights must show")
                    for folder in ("run", "out"):
                        shutil.rmtree(self.folder / folder)

    def test_imported_weights_have_their_loss(self):
        inputs, targets = hf_files.sequences(self.folder / "text", SEQ_LEN)
        for family in FAMILIES:
            with self.subTest(family):
                self.trained(family)
                config, tensors = self.exported("run", "out", "--dtype", "fp32")
                tensors = scattered(tensors)
                hf_files.write_folder(self.folder / "theirs", config, tensors, files=3)
                self.copus("checkpoint", "import", "theirs", "--run-dir", "new")
                loss = self.copus.loss_of_import("new", "./theirs", "text", SEQ_LEN, len(inputs))
                self.assert_close(loss, loss_of(config, tensors, inputs, targets))
                for folder in ("run", "out", "theirs", "new"):
                    shutil.rmtree(self.folder / folder)

    def test_bf16_is_the_nearest_and_sharding_changes_nothing(self):
        self.trained("gpt2")
        _, whole = self.exported("run", "whole", "--dtype", "fp32")
        config, parts = self.exported("run", "parts", "--max-shard-size", "20KB")
        self.assertGreater(len(list((self.folder / "parts").glob("model-*-of-*.safetensors"))), 3)
        self.assertEqual(config["torch_dtype"], "bfloat16")
        self.assertEqual(list(whole), list(parts))
        for name, tensor in whole.items():
            self.assertTrue(torch.equal(tensor.bfloat16(), parts[name]), name)

    def test_half_precision_sources_are_read_exactly(self):
        self.trained("llama")
        config, tensors = self.exported("run", "out", "--dtype", "fp32")
        for dtype in (torch.bfloat16, torch.float16):
            with self.subTest(str(dtype)):
                halves = {name: t.to(dtype) for name, t in scattered(tensors).items()}
                hf_files.write_folder(self.folder / "half", config, halves)
                self.copus("checkpoint", "import", "half", "--run-dir", "new")
                _, again = self.exported("new", "again", "--dtype", "fp32")
                for name, tensor in halves.items():
                    self.assertTrue(torch.equal(tensor.float(), again[name]), name)
                for folder in ("half", "new", "again"):
                    shutil.rmtree(self.folder / folder)


if __name__ == "__main__":
    arguments = sys.argv[1:]
    if "--bin" in arguments:
        at = arguments.index("--bin")
        PROGRAM = Path(arguments[at + 1]).resolve()
        del arguments[at : at + 2]
    torch.set_num_threads(1)
    unittest.main(argv=[sys.argv[0], *arguments], verbosity=2)
