"""Reads and writes Hugging Face model folders, and runs copus on known tokens. Uses neither transformers nor the engine.

The tokens of a test are bytes of ASCII. `copus train` cuts them into sequences of seq_len + 1 that overlap by one. The last
share `--held-out` of them is for evaluation. The evaluation at the end of a run is of the weights that the run saves.
"""

import json
import math
import os
import random
import struct
import subprocess
from pathlib import Path

import torch

import reference

TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def write_text(path, size=6000, seed=0):
    """Writes words of a small vocabulary. A model learns them in a few steps, so that the test depends on its weights."""
    rng = random.Random(seed)
    words = ["".join(rng.choice("abcdefghijklmnop") for _ in range(rng.randint(2, 7))) for _ in range(40)]
    text = " ".join(rng.choice(words) for _ in range(size))[:size]
    Path(path).write_text(text)


def sequences(path, seq_len):
    """Returns inputs and targets, [sequences, seq_len] each."""
    tokens = torch.tensor(list(Path(path).read_bytes()))
    count = (len(tokens) - 1) // seq_len
    rows = [tokens[i * seq_len : (i + 1) * seq_len + 1] for i in range(count)]
    both = torch.stack(rows)
    return both[:, :-1], both[:, 1:]


def held_out(rows, share):
    return rows[len(rows) - max(1, int(share * len(rows))) :]


def relative_error(got, exact):
    """Returns the root mean square of the error over that of the exact values."""
    error = (got.double() - exact.double()).square().mean() / exact.double().square().mean()
    return error.sqrt().item()


def read_file(path):
    """Returns the tensors of a safetensors file. Checks that every byte of its data belongs to one of them."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    tensors, end = {}, 0
    for name, entry in header.items():
        begin, stop = entry["data_offsets"]
        assert begin == end, name
        end = stop
        raw = torch.frombuffer(bytearray(data[8 + length + begin : 8 + length + stop]), dtype=TYPES[entry["dtype"]])
        assert raw.numel() == math.prod(entry["shape"]), name
        tensors[name] = raw.reshape(entry["shape"])
    assert 8 + length + end == len(data), path
    return tensors


def read_folder(folder):
    """Returns config.json, and the tensors of model.safetensors or of the files that the index names."""
    folder = Path(folder)
    config = json.loads((folder / "config.json").read_text())
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return config, read_file(folder / "model.safetensors")
    index = json.loads(index.read_text())
    tensors = {}
    for file in sorted(set(index["weight_map"].values())):
        for name, tensor in read_file(folder / file).items():
            assert index["weight_map"].pop(name) == file, name
            tensors[name] = tensor
    assert not index["weight_map"]
    assert index["metadata"]["total_size"] == sum(t.numel() * t.element_size() for t in tensors.values())
    return config, tensors


def write_file(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in tensors.items():
        flat = tensor.contiguous().view(-1)
        raw = flat.view(torch.int16 if flat.element_size() == 2 else torch.int32).numpy().tobytes()
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_folder(folder, config, tensors, files=1):
    folder = Path(folder)
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if files == 1:
        write_file(folder / "model.safetensors", tensors)
        return
    weight_map, size = {}, sum(t.numel() * t.element_size() for t in tensors.values())
    for i in range(files):
        name = f"model-{i + 1:05}-of-{files:05}.safetensors"
        part = dict(list(tensors.items())[i::files])
        write_file(folder / name, part)
        weight_map.update({tensor: name for tensor in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": size}, "weight_map": weight_map}))


class Copus:
    """Runs the program in a folder. A command that fails raises an error with its output."""

    LIMIT_S = 300 * float(os.environ.get("TEST_PATIENCE", "1"))

    def __init__(self, program, folder, device="cpu"):
        self.program, self.folder, self.device = Path(program), Path(folder), device

    def __call__(self, *args):
        return self.run(self.program, *args)

    def run(self, program, *args):
        env = dict(os.environ, OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "1"))
        command = [str(program), *map(str, args)]
        done = subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=self.LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done.stdout

    def logits(self, checkpoint, precision, batch, seq_len):
        """Returns random tokens and the engine's logits of them."""
        self.run(self.program.parent / "dump_logits", checkpoint, self.device, precision, batch, seq_len, "logits")
        return reference.read_safetensors(self.folder / "logits")

    def train(self, run, *args):
        self("train", "--run-dir", run, "--device", self.device, *args)
        return [json.loads(line) for line in (self.folder / run / "events.jsonl").read_text().splitlines()]

    def trained(self, run, config, data, seq_len, share, *args):
        """Trains a few steps. Returns the held-out loss of the final weights."""
        events = self.train(
            run, "--model", config, "--data", data, "--seq-len", seq_len, "--held-out", share, "--eval-every", 1000,
            "--eval-samples", 100000, *args
        )  # fmt: skip
        return [event for event in events if event["event"] == "eval"][-1]["loss"]

    def loss_of_import(self, run, model, data, seq_len, count, *args):
        """Returns the loss on all `count` sequences: one step reads each of them once."""
        events = self.train(
            run, "--resume", "--model", model, "--data", data, "--seq-len", seq_len, "--held-out", 0, "--steps", 1,
            "--global-batch", count, "--lr", 0, *args
        )  # fmt: skip
        return [event for event in events if event["event"] == "step"][0]["loss"]
