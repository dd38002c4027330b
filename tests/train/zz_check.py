import json, re, subprocess, sys, torch, transformers
sys.path.insert(0, "tests/train")
import reference as R, torch_eager as E
print("torch", torch.__version__, "transformers", transformers.__version__)
def llama_names(n):
    for a, b in (("model.embed_tokens", "embed.tokens"), ("model.layers", "layers"), ("model.norm", "final_norm"), ("lm_head", "head"),
                 ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "mlp_norm"), ("self_attn", "attention"),
                 ("o_proj", "out"), ("_proj", "")):
        n = n.replace(a, b)
    return n
def gpt2_names(n):
    for a, b in (("transformer.wte", "embed.tokens"), ("transformer.wpe", "embed.positions"), ("transformer.h.", "layers."), ("transformer.ln_f", "final_norm"),
                 ("ln_1", "attention_norm"), ("ln_2", "mlp_norm"), ("attn.c_attn", "attention.qkv"), ("attn.c_proj", "attention.out"),
                 ("mlp.c_fc", "mlp.up"), ("mlp.c_proj", "mlp.down")):
        n = n.replace(a, b)
    return n
def canonical(hf, get):
    out = {}
    for n, p in hf.named_parameters():
        t = get(p)
        if hf.config.model_type == "gpt2":
            if ".c_" in n and t.dim() == 2: t = t.T
            n = gpt2_names(n)
            if "qkv" in n:
                for part, piece in zip("qkv", t.chunk(3, 0)): out[n.replace("qkv", part)] = piece
                continue
        else: n = llama_names(n)
        out[n] = t
    return out
for m in ("gpt2", "llama", "qwen3", "llama3_rope"):
    cfg = json.load(open(f"tests/train/{m}.json"))
    try:
        torch.manual_seed(5)
        hf = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**cfg), attn_implementation="eager").double()
        with torch.no_grad():
            for n, p in hf.named_parameters():
                if p.dim() > 1: p.normal_(0, .25 if "emb" in n or "wte" in n or "wpe" in n else 1.2 / p.shape[1] ** .5)
                else: p.normal_(0 if "bias" in n else 1, .3)
        text = torch.randint(211, (3, 34))
        hf.train()
        logits = hf(text[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten()); loss.backward()
        dump = {"weight/" + k: v for k, v in canonical(hf, lambda p: p.detach().clone()).items()}
        dump.update(tokens=text[:, :-1], targets=text[:, 1:])
        mine, exact = R.reference(cfg, dump, torch.float64)
        errors = R.gradient_errors(canonical(hf, lambda p: p.grad), exact)
        print("transformers", m, loss.item(), "loss error", abs(loss.item() - mine) / mine, "gradients", R.worst(e[0] for e in errors.values()), len(errors), getattr(hf.config, "rope_parameters", None))
    except Exception as e:
        print("transformers", m, "FAILED", repr(e)[:600])
big = {"llama": {"model_type": "llama", "num_hidden_layers": 12, "hidden_size": 1024, "intermediate_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 4, "max_position_embeddings": 2048, "vocab_size": 32000},
       "gpt2": {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50304},
       "qwen3": {"model_type": "qwen3", "num_hidden_layers": 12, "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 2048, "vocab_size": 32000}}
for name, cfg in big.items():
    json.dump(cfg, open(f"/tmp/{name}.json", "w"))
    for extra in ("--dtype fp32", "--dtype bf16", "--pure-bf16", "--pure-bf16 --micro-batches 3", "--pure-bf16 --compile") if name == "llama" else ("--dtype bf16", "--pure-bf16"):
        r = subprocess.run([sys.executable, "tests/train/torch_eager.py", "--config", f"/tmp/{name}.json", "--seq-len", "1024", "--micro-batch", "16", "--steps", "8", "--device", "cuda", *extra.split()], capture_output=True, text=True)
        print(name, extra, r.stdout.strip()[:300] or r.stderr[-1500:], flush=True)
r = subprocess.run([sys.executable, "tests/train/torch_eager.py", "--config", "tests/train/llama3_rope.json", "--seq-len", "33", "--micro-batch", "3", "--steps", "4"], capture_output=True, text=True)
print("cpu", r.stdout.strip()[:300] or r.stderr[-1500:])
