#include "copus/train/run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string_view>

#include "copus/base/text.h"
#include "copus/train/record/run_directory.h"

namespace copus {
namespace {

using Clock = std::chrono::steady_clock;

// What rank 0 writes down. Other ranks have none.
class Recorder {
 public:
  static Result<std::optional<Recorder>> open(const RunOptions& options, int rank) {
    std::optional<Recorder> recorder;
    if (rank != 0) return recorder;
    COPUS_TRY(RunDirectory directory, RunDirectory::open(options.run_dir, /*append=*/false));
    COPUS_TRY_VOID(directory.write_text("config.toml", options.config));
    recorder.emplace(std::move(directory));
    return recorder;
  }

  explicit Recorder(RunDirectory directory) : directory_(std::move(directory)) {}

  double now() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }
  Result<void> write(const char* event, Json fields) {
    Json line = {{"event", event}, {"t", now()}};
    line.update(fields);
    return directory_.append_event(line);
  }

 private:
  RunDirectory directory_;
  Clock::time_point begin_ = Clock::now();
};

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

class Run {
 public:
  Run(const RunOptions& options, const Dataset& data, std::optional<Recorder>& recorder,
      Progress* progress)
      : o_(options),
        data_(data),
        recorder_(recorder),
        progress_(progress),
        plan_(short_name(options.trainer.plan)) {}

  Result<void> until_done(Trainer& trainer, const std::atomic<bool>& stop_asked) {
    COPUS_TRY_VOID(record_start());
    begin_ = Clock::now();
    last_ = begin_;
    while (outcome_.reason.empty()) {
      // Rank 0's clock is the run's: it can tell its time limit from another rank's signal.
      late_ = recorder_ && o_.for_seconds && elapsed() >= *o_.for_seconds;
      COPUS_TRY(const StepResult result,
                trainer.step(data_, outcome_.samples, late_ || stop_asked.load()));
      if (!result.not_finite.empty()) {
        fail_not_finite(result);
        break;
      }
      ++outcome_.steps;
      outcome_.samples += o_.trainer.global_batch;
      outcome_.loss = result.loss;
      COPUS_TRY_VOID(record_step(result));
      COPUS_TRY_VOID(decide(trainer, result, stop_asked));
    }
    return {};
  }

  void fail(const std::string& why) {
    outcome_.reason = "failed";
    outcome_.error = why;
  }

  RunOutcome finish() {
    outcome_.seconds = elapsed();
    outcome_.tokens_per_s = static_cast<double>(outcome_.samples * o_.trainer.seq_len) /
                            std::max(1e-9, outcome_.seconds);
    const Result<void> recorded = record_end();
    if (!recorded && outcome_.error.empty()) fail(recorded.error().message);
    return outcome_;
  }

 private:
  double elapsed() const { return std::chrono::duration<double>(Clock::now() - begin_).count(); }

  Result<void> decide(Trainer& trainer, const StepResult& result,
                      const std::atomic<bool>& stop_asked) {
    const bool last_step = o_.steps && outcome_.steps >= *o_.steps;
    const bool last_sample = o_.samples && outcome_.samples >= *o_.samples;
    const bool stopping = last_step || last_sample || result.asked_to_stop > 0;
    if (o_.eval_every > 0 && (outcome_.steps % o_.eval_every == 0 || stopping)) {
      COPUS_TRY(outcome_.held_out_loss, trainer.evaluate(data_, o_.eval_samples));
      if (recorder_) {
        COPUS_TRY_VOID(recorder_->write("eval", {{"step", outcome_.steps},
                                                 {"samples", outcome_.samples},
                                                 {"loss", *outcome_.held_out_loss}}));
      }
      if (progress_ != nullptr) {
        progress_->say(
            fmt::format("step {}  held-out loss {:.4f}", outcome_.steps, *outcome_.held_out_loss));
      }
      last_ = Clock::now();  // evaluation is no part of the next step's time
    }
    const double reached =
        o_.eval_every > 0 ? outcome_.held_out_loss.value_or(INFINITY) : outcome_.loss;
    if (o_.until_loss && reached <= *o_.until_loss) {
      outcome_.reason = "loss";
    } else if (last_step) {
      outcome_.reason = "steps";
    } else if (last_sample) {
      outcome_.reason = "samples";
    } else if (result.asked_to_stop > 0) {
      const bool out_of_time = recorder_ ? late_ : o_.for_seconds.has_value();
      outcome_.reason = out_of_time && !stop_asked.load() ? "time" : "signal";
    }
    return {};
  }

  Result<void> record_start() {
    if (progress_ != nullptr) {
      progress_->say(fmt::format("{} ({} parameters), {} rank{}, {}, {} tokens of data",
                                 o_.trainer.model.name,
                                 human_count(static_cast<double>(o_.trainer.model.total_params())),
                                 o_.trainer.plan.gpus(), o_.trainer.plan.gpus() == 1 ? "" : "s",
                                 plan_, human_count(static_cast<double>(data_.tokens()))));
      if (o_.trainer.model.dropout) {
        progress_->say("the model's config asks for dropout: it is not applied");
      }
    }
    if (!recorder_) return {};
    return recorder_->write("start",
                            {{"model", o_.trainer.model.name},
                             {"parameters", o_.trainer.model.total_params()},
                             {"plan", plan_to_json(o_.trainer.plan)},
                             {"ranks", o_.trainer.plan.gpus()},
                             {"device", o_.trainer.device.is_cuda() ? "cuda" : "cpu"},
                             {"precision", o_.trainer.compute == Compute::kBf16 ? "bf16" : "fp32"},
                             {"seq_len", o_.trainer.seq_len},
                             {"global_batch", o_.trainer.global_batch},
                             {"data_tokens", data_.tokens()},
                             {"peak_flops", o_.peak ? Json(o_.peak->v) : Json(nullptr)}});
  }

  // Time left by whichever limit comes first.
  std::optional<double> remaining_s() const {
    const double per_step = elapsed() / static_cast<double>(outcome_.steps);
    std::optional<double> left;
    const auto limit = [&](double seconds) {
      left = std::min(left.value_or(seconds), std::max(0.0, seconds));
    };
    if (o_.steps) limit(per_step * static_cast<double>(*o_.steps - outcome_.steps));
    if (o_.samples) {
      limit(per_step * static_cast<double>(*o_.samples - outcome_.samples) /
            static_cast<double>(o_.trainer.global_batch));
    }
    if (o_.for_seconds) limit(*o_.for_seconds - elapsed());
    return left;
  }

  Result<void> record_step(const StepResult& result) {
    const auto now = Clock::now();
    const double seconds = std::chrono::duration<double>(now - last_).count();
    last_ = now;
    const double tokens = static_cast<double>(o_.trainer.global_batch * o_.trainer.seq_len);
    std::optional<double> mfu;
    if (o_.peak) {
      mfu = 3 * o_.trainer.model.forward_flops_per_token(o_.trainer.seq_len) * tokens / seconds /
            o_.peak->v;
    }
    if (progress_ != nullptr) {
      progress_->step({.step = outcome_.steps,
                       .last_step = o_.steps,
                       .loss = result.loss,
                       .tokens_per_s = tokens / seconds,
                       .mfu = mfu,
                       .global_batch = o_.trainer.global_batch,
                       .plan = plan_,
                       .noise_scale = std::nullopt,
                       .remaining_s = remaining_s()});
    }
    if (!recorder_) return {};
    return recorder_->write("step", {{"step", outcome_.steps},
                                     {"samples", outcome_.samples},
                                     {"tokens", outcome_.samples * o_.trainer.seq_len},
                                     {"loss", result.loss},
                                     {"grad_norm", result.grad_norm},
                                     {"lr", result.lr},
                                     {"global_batch", o_.trainer.global_batch},
                                     {"plan", plan_},
                                     {"step_time_s", seconds},
                                     {"tokens_per_s", tokens / seconds},
                                     {"mfu", or_null(mfu)},
                                     {"gns", nullptr},
                                     {"g2", nullptr},
                                     {"s", nullptr},
                                     {"bcrit", nullptr},
                                     {"goodput", nullptr},
                                     {"tp_wait_s", result.tp_wait_s},
                                     {"pp_wait_s", result.pp_wait_s},
                                     {"dp_wait_s", result.dp_wait_s},
                                     {"sync_wait_s", result.sync_wait_s},
                                     {"optimizer_s", result.optimizer_s}});
  }

  void fail_not_finite(const StepResult& result) {
    outcome_.reason = "not_finite";
    outcome_.loss = result.loss;
    // The sign of what is no number says nothing.
    const double norm = std::isnan(result.grad_norm) ? NAN : result.grad_norm;
    const double loss = std::isnan(result.loss) ? NAN : result.loss;
    outcome_.error =
        fmt::format("step {}: loss {}, gradient norm {}: {}; the weights are as after step {}",
                    outcome_.steps + 1, loss, norm, result.not_finite, outcome_.steps);
  }

  Result<void> record_end() {
    if (progress_ != nullptr) progress_->finish();
    if (!recorder_) return {};
    return recorder_->write(
        "end", {{"reason", outcome_.reason},
                {"error", outcome_.error.empty() ? Json(nullptr) : Json(outcome_.error)},
                {"step", outcome_.steps},
                {"samples", outcome_.samples},
                {"loss", outcome_.loss},
                {"held_out_loss", or_null(outcome_.held_out_loss)},
                {"seconds", outcome_.seconds},
                {"tokens_per_s", outcome_.tokens_per_s}});
  }

  const RunOptions& o_;
  const Dataset& data_;
  std::optional<Recorder>& recorder_;
  Progress* progress_;
  std::string plan_;
  RunOutcome outcome_;
  Clock::time_point begin_ = Clock::now(), last_ = begin_;
  bool late_ = false;
};

// FNV-1a over a few samples: other data shows in it.
std::uint64_t fingerprint(const Dataset& data) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(data.seq_len() + 1));
  const std::int64_t n = data.epoch_samples();
  for (const std::int64_t index : {std::int64_t{0}, n / 3, n / 2, n - 1}) {
    if (!data.sample(index, tokens)) continue;
    for (const std::int64_t token : tokens) {
      hash = (hash ^ static_cast<std::uint64_t>(token)) * 0x100000001b3ULL;
    }
  }
  return hash;
}

// What must be the same on every rank, a line each. Paths may differ between machines, what they
// lead to may not.
std::string common_options(const RunOptions& options, const Dataset& data) {
  std::string text;
  for (const std::string_view line : split(options.config, '\n')) {
    const std::string_view key = line.substr(0, line.find(' '));
    if (line.empty() || key == "model" || key == "data" || key == "run-dir") continue;
    text += fmt::format("{}\n", line);
  }
  const ModelSpec& m = options.trainer.model;
  text += fmt::format("shape = {} layers of {}, MLP {}, {}/{} heads of {}, vocabulary {}\n",
                      m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.head_dim, m.vocab);
  text += fmt::format(
      "kind = gated {}, tied {}, norm {} {}, positions {} {} {} {} {} {} {}, activation {}, biases "
      "{} {} "
      "{}, qk_norm {}, std {}\n",
      m.gated_mlp, m.tied_embeddings, static_cast<int>(m.norm), m.norm_eps,
      static_cast<int>(m.positions), m.rope_theta, static_cast<int>(m.rope_scaling.kind),
      m.rope_scaling.factor, m.rope_scaling.low_freq_factor, m.rope_scaling.high_freq_factor,
      m.rope_scaling.original_max_positions, static_cast<int>(m.activation), m.qkv_bias,
      m.attention_out_bias, m.mlp_bias, m.qk_norm, m.init_std);
  return text +
         fmt::format("tokens of data = {}\nsamples = {:016x}\n", data.tokens(), fingerprint(data));
}

// Where a launcher starts the ranks each has its own command line: with another seed on one of them
// the replicas would drift apart without a word.
Result<void> check_same_options(const Rendezvous& where, const RunOptions& options,
                                const Dataset& data) {
  if (where.world_size == 1) return {};
  const std::string key = "copus/options";
  const std::string mine = common_options(options, data);
  if (where.rank == 0) {
    where.store->set(key, std::vector<std::uint8_t>(mine.begin(), mine.end()));
    return {};
  }
  std::string first;
  try {
    const std::vector<std::uint8_t> bytes = where.store->get(key);
    first.assign(bytes.begin(), bytes.end());
  } catch (const std::exception& error) {
    throw CommError(
        fmt::format("no answer of rank 0 at the ranks' meeting point ({})", first_line(error)));
  }
  if (mine == first) return {};
  const std::vector<std::string_view> ours = split(mine, '\n'), theirs = split(first, '\n');
  std::size_t i = 0;
  while (i < ours.size() && i < theirs.size() && ours[i] == theirs[i]) ++i;
  return make_error("rank {}: got {}; want {}, as rank 0 has it", where.rank,
                    i < ours.size() ? ours[i] : "", i < theirs.size() ? theirs[i] : "");
}

}  // namespace

Result<Dataset> open_data(const RunOptions& options) {
  const TrainerOptions& t = options.trainer;
  COPUS_TRY(Dataset data, Dataset::open(options.data, {.seq_len = t.seq_len,
                                                       .seed = t.seed,
                                                       .vocab = t.model.vocab,
                                                       .held_out = options.held_out}));
  // A file of another tokenizer shows in its first sample.
  std::vector<std::int64_t> first(static_cast<std::size_t>(t.seq_len + 1));
  COPUS_TRY_VOID(data.sample(0, first));
  if (options.eval_every > 0 && data.eval_samples() < 1) {
    return make_error(
        "--held-out: got {}, which is none of {} sequences; want more for --eval-every",
        options.held_out, data.epoch_samples());
  }
  return data;
}

Result<RunOutcome> run_training(GroupCache& groups, const RunOptions& options, Progress* progress,
                                const std::atomic<bool>& stop_asked) {
  COPUS_TRY(const Dataset data, open_data(options));
  COPUS_TRY_VOID(check_same_options(groups.rendezvous(), options, data));
  COPUS_TRY(std::optional<Recorder> recorder, Recorder::open(options, groups.rendezvous().rank));
  Run run(options, data, recorder, progress);
  const auto train = [&]() -> Result<void> {
    COPUS_TRY(const std::unique_ptr<Trainer> trainer, Trainer::create(groups, options.trainer));
    return run.until_done(*trainer, stop_asked);
  };
  try {
    if (const Result<void> trained = train(); !trained) run.fail(trained.error().message);
  } catch (const std::exception& error) {
    run.fail(first_line(error));
  }
  return run.finish();
}

}  // namespace copus
