#!/usr/bin/env python3
"""What is left to learn from a table's columns, once Copus has predicted its rows.

    copus validate --measured nanotron_h100.csv --out rows.csv
    bench/column_bound.py rows.csv [--framework nanotron]

Boosted regression trees see every column that tells the rows apart, what follows from them, and the prediction itself, and
learn log(measured / predicted). If they predict rows that they have not seen no better than Copus does, the columns do not
say what makes these runs differ. Rows are left out by model, and a tenth at random at a time: there the trees know runs of
the same model. AUC is the chance that a run which took more than 1.5 times the prediction is corrected upwards further than one
which did not: 0.5 is a coin. Regret is how much slower the plan predicted fastest was than the fastest, on average over
groups of four rows or more that differ in their plan alone. Needs numpy.
"""

import argparse
import csv

import numpy as np

COLUMNS = ["layers", "hidden", "heads", "kv_heads", "vocab", "seq_len", "num_gpus", "tp", "pp", "dp", "micro_batch", "global_batch", "zero_stage"]  # fmt: skip
SETTINGS = [(2, 50), (3, 200), (5, 300)]  # depth, trees
RATE, SHARE_OF_ROWS, LEAST_IN_LEAF, SLOW = 0.06, 0.7, 5, 1.5


def features(row):
    """The columns, and what a person would derive from them."""
    value = {name: float(row[name] or 0) for name in COLUMNS}
    v = value
    accumulated = v["global_batch"] / (v["dp"] * v["micro_batch"])
    predicted = float(row["predicted_step_time_s"])
    sizes = [
        predicted, predicted / accumulated, accumulated, v["tp"] * v["dp"], v["tp"] * v["pp"], v["dp"] * v["pp"],
        v["hidden"] / v["tp"], v["micro_batch"] * v["seq_len"] * v["hidden"], v["micro_batch"] * v["seq_len"] * v["hidden"] / v["tp"],
        v["layers"] / v["pp"], 1 + (v["pp"] - 1) / accumulated,
    ]  # fmt: skip
    whether = [v["tp"] > 8, v["tp"] * v["dp"] > 8, v["layers"] % v["pp"] != 0, v["dp"] > 1]
    return [*value.values(), *np.log2(sizes), *whether]


def grow(x, y, depth, columns):
    """A tree: a number, or (column, threshold, below, above)."""
    best = (y.sum() ** 2 / max(len(y), 1) + 1e-9, None, None)
    for column in columns if depth > 0 else []:
        order = np.argsort(x[:, column], kind="stable")
        values, sums = x[order, column], np.cumsum(y[order])
        cut = np.nonzero(values[1:] != values[:-1])[0]
        cut = cut[(cut + 1 >= LEAST_IN_LEAF) & (len(y) - cut - 1 >= LEAST_IN_LEAF)]
        if len(cut) == 0:
            continue
        gain = sums[cut] ** 2 / (cut + 1) + (sums[-1] - sums[cut]) ** 2 / (len(y) - cut - 1)
        at = np.argmax(gain)
        if gain[at] > best[0]:
            best = (gain[at], column, (values[cut[at]] + values[cut[at] + 1]) / 2)
    _, column, threshold = best
    if column is None:
        return np.median(y) if len(y) else 0.0
    below = x[:, column] <= threshold
    return column, threshold, grow(x[below], y[below], depth - 1, columns), grow(x[~below], y[~below], depth - 1, columns)


def evaluate(tree, x):
    if not isinstance(tree, tuple):
        return np.full(len(x), tree)
    column, threshold, low, high = tree
    below = x[:, column] <= threshold
    out = np.empty(len(x))
    out[below], out[~below] = evaluate(low, x[below]), evaluate(high, x[~below])
    return out


def boosted(x, y, unseen, depth, trees):
    random = np.random.default_rng(0)
    fitted, out = np.zeros(len(y)), np.zeros(len(unseen))
    for _ in range(trees):
        some = random.random(len(y)) < SHARE_OF_ROWS
        columns = random.permutation(x.shape[1])[: x.shape[1] // 2]
        tree = grow(x[some], np.clip(y - fitted, -0.7, 0.7)[some], depth, columns)
        fitted += RATE * evaluate(tree, x)
        out += RATE * evaluate(tree, unseen)
    return out


def auc(score, positive):
    rank = np.argsort(np.argsort(score))
    few, many = positive.sum(), (~positive).sum()
    return (rank[positive].sum() - few * (few - 1) / 2) / (few * many)


def regret(rows, times, predicted):
    groups = {}
    for i, row in enumerate(rows):
        key = tuple(row[name] for name in ("source", "model", "gpu", "num_gpus", "global_batch", "seq_len"))
        groups.setdefault(key, []).append(i)
    large = [np.array(group) for group in groups.values() if len(group) >= 4]
    return 100 * np.mean([times[g[np.argmin(predicted[g])]] / times[g].min() - 1 for g in large])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", help="what copus validate --out wrote")
    parser.add_argument("--framework", default="nanotron")
    args = parser.parse_args()
    with open(args.rows, newline="", encoding="utf-8") as file:
        rows = [r for r in csv.DictReader(file) if r["framework"] == args.framework and r.get("status", "ok") == "ok"]
    rows = [r for r in rows if r["step_time_s"] and r["predicted_step_time_s"]]
    if not rows:
        parser.error(f"{args.rows}: no timed and priced row of {args.framework}")
    x = np.array([features(row) for row in rows], dtype=float)
    times = np.array([float(row["step_time_s"]) for row in rows])
    predicted = np.array([float(row["predicted_step_time_s"]) for row in rows])
    y = np.log(times / predicted)
    slow = y > np.log(SLOW)

    def error(correction):
        return 100 * np.mean(np.abs(np.exp(correction - y) - 1))

    def report(what, correction):
        loss = regret(rows, times, predicted * np.exp(correction))
        chance = f", AUC {auc(correction, slow):.2f}" if slow.any() and correction.any() else ""
        print(f"{what}: error {error(correction):.1f}%, regret {loss:.1f}%{chance}", flush=True)

    print(f"{len(rows)} rows, {slow.sum()} took more than {SLOW} times the prediction")
    report("Copus alone, fitted to all", np.zeros(len(rows)))
    folds = {
        "by model": np.unique([row["model"] for row in rows], return_inverse=True)[1],
        "at random": np.random.default_rng(1).permutation(len(rows)) * 10 // len(rows),
    }
    for name, fold in folds.items():
        for depth, trees in SETTINGS:
            correction = np.zeros(len(rows))
            for k in range(fold.max() + 1):
                out = fold == k
                correction[out] = boosted(x[~out], y[~out], x[out], depth, trees)
            report(f"left out {name}, {trees} trees of depth {depth}", correction)


if __name__ == "__main__":
    main()
