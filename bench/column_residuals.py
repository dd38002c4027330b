#!/usr/bin/env python3
"""Tests whether another model can learn from a table's columns the error of Copus's predictions.

    copus validate --measured nanotron_h100.csv --out rows.csv
    bench/column_residuals.py rows.csv

Boosted regression trees see every column of the setup that differs between rows, some quantities derived from these, and
the prediction itself. They learn log(measured / predicted) from nine tenths of the rows and correct the prediction of the
other tenth. The test favours the trees: they know other runs of the same model, and the prediction was fitted to all rows. So
if the unseen rows do not improve, these trees find nothing more in the columns. AUC is the probability that a run which took
more than 1.5 times the prediction gets a larger upward correction than a run which did not; 0.5 is chance. Needs numpy.
"""

import argparse
import csv
import sys

import numpy as np

NOT_SETUP = {"id", "step_time_s", "tokens_per_s_per_gpu", "peak_mem_gib", "predicted_peak_mem_gib", "status"}
SETTINGS = [(2, 50), (3, 200), (5, 300)]  # depth, trees
FOLDS, RATE, SHARE_OF_ROWS, LEAST_IN_LEAF, SLOW = 10, 0.06, 0.7, 5, 1.5


def read_rows(path):
    """Returns the rows that have a measured and a predicted time."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    missing = {"step_time_s", "predicted_step_time_s", "tp", "pp", "dp", "micro_batch"} - set(rows[0] if rows else [])
    if missing:
        raise ValueError(f"no column {', '.join(sorted(missing))}; want what copus validate --out writes")
    rows = [r for r in rows if r.get("status", "ok") == "ok" and r["step_time_s"] and r["predicted_step_time_s"]]
    if len(rows) < 100:
        raise ValueError(f"got {len(rows)} rows with a measured and a predicted time; want 100 or more")
    return rows


def as_numbers(values):
    try:
        return np.array([float(value or 0) for value in values])
    except ValueError:
        return np.unique(values, return_inverse=True)[1].astype(float)


def features(rows):
    columns = {name: as_numbers([row[name] for row in rows]) for name in rows[0] if name not in NOT_SETUP}
    tp, pp, dp, micro_batch = (np.maximum(columns[name], 1) for name in ("tp", "pp", "dp", "micro_batch"))
    accumulated = np.maximum(columns["global_batch"] / (dp * micro_batch), 1)
    tokens = micro_batch * columns["seq_len"]
    derived = [
        accumulated, tp * dp, tp * pp, dp * pp, columns["hidden"] / tp, tokens, tokens * columns["hidden"] / tp,
        columns["layers"] / pp, columns["layers"] % pp, (pp - 1) / accumulated, columns["predicted_step_time_s"] / accumulated,
    ]  # fmt: skip
    return np.stack([c for c in [*columns.values(), *derived] if np.ptp(c) > 0], axis=1)


def grow(x, y, depth, columns):
    """Returns a tree: a number, or (column, threshold, tree below, tree above)."""
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
    """Fits trees to (x, y). Returns their values for unseen rows."""
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
    above = score[positive][:, None] - score[~positive][None, :]
    return np.mean(above > 0) + np.mean(above == 0) / 2


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", help="what copus validate --out wrote")
    try:
        rows = read_rows(parser.parse_args().rows)
    except (OSError, ValueError) as error:
        print(f"rows: {error}", file=sys.stderr)
        sys.exit(2)
    x = features(rows)
    y = np.log([float(r["step_time_s"]) / float(r["predicted_step_time_s"]) for r in rows])
    slow = y > np.log(SLOW)
    fold = np.random.default_rng(1).permutation(len(rows)) % FOLDS

    def error(correction):
        return 100 * np.mean(np.abs(np.exp(correction - y) - 1))

    print(f"{len(rows)} rows, {slow.sum()} took more than {SLOW} times the prediction; error {error(0):.1f}%")
    for depth, trees in SETTINGS:
        correction, chances = np.zeros(len(rows)), []
        for k in range(FOLDS):
            out = fold == k
            correction[out] = boosted(x[~out], y[~out], x[out], depth, trees)
            if 0 < slow[out].sum() < out.sum():
                chances.append(auc(correction[out], slow[out]))
        chance = f", AUC {np.mean(chances):.2f}" if chances else ""
        print(f"corrected by {trees} trees of depth {depth}: {error(correction):.1f}%{chance}", flush=True)


if __name__ == "__main__":
    main()
