#include "copus/events/event_json.h"

#include <array>
#include <cmath>
#include <concepts>
#include <limits>
#include <type_traits>
#include <utility>

#include "copus/base/checksum.h"
#include "copus/base/text.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

// visit_fields() states the fields of each event once, in the order in which they are written.
// Printing and parsing both use it. It calls a visitor with a key and a field, whose type decides
// how the field is written. A visitor also has
//   later(key, field)      a key that earlier versions did not write
//   or_null(key, text)     an empty text is null
//   short_plan(key, plan)  the plan's short name, not the whole plan
//   batch(key, n)          a count of 1 or more
//   object(key, members)   an object, whose members a function of a visitor lists

template <typename E>
constexpr std::string_view kKind = "";

// Event is T or const T.
template <typename Event, typename T>
concept Is = std::same_as<std::remove_const_t<Event>, T>;

template <>
constexpr std::string_view kKind<StartEvent> = "start";
void visit_fields(Is<StartEvent> auto& e, auto& visit) {
  visit("model", e.model);
  visit("parameters", e.parameters);
  visit("plan", e.plan);
  visit("ranks", e.ranks);
  visit("device", e.device);
  visit("precision", e.precision);
  visit("seq_len", e.seq_len);
  visit.batch("global_batch", e.global_batch);
  visit("data_tokens", e.data_tokens);
  visit("peak_flops", e.peak);
  visit.later("adapt", e.adapt);
  visit("cluster", e.cluster);
}

template <>
constexpr std::string_view kKind<RestartEvent> = "restart";
void visit_fields(Is<RestartEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit.or_null("from", e.from);
  visit("plan", e.plan);
  visit.batch("global_batch", e.global_batch);
  visit("ranks", e.ranks);
  visit("why", e.why);
  visit.or_null("skipped", e.skipped);
  visit.later("options", e.options);
}

template <>
constexpr std::string_view kKind<StepEvent> = "step";
void visit_fields(Is<StepEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit("tokens", e.tokens);
  visit("loss", e.loss);
  visit("grad_norm", e.grad_norm);
  visit("lr", e.lr);
  visit.batch("global_batch", e.global_batch);
  visit.short_plan("plan", e.plan);
  visit("step_time_s", e.step_time);
  visit("tokens_per_s", e.tokens_per_s);
  visit("mfu", e.mfu);
  visit("gns", e.gns);
  visit("gns_low", e.gns_low);
  visit("gns_high", e.gns_high);
  visit("g2", e.g2);
  visit("s", e.s);
  visit("gns_scales", e.gns_scales);
  visit("norms", e.norms);
  visit("scale_norms", e.scale_norms);
  visit("bcrit", e.critical_batch);
  visit("goodput", e.goodput);
  visit.later("data_hash", e.data_hash);
  visit("tp_wait_s", e.tp_wait);
  visit("pp_wait_s", e.pp_wait);
  visit("dp_wait_s", e.dp_wait);
  visit.later("sync_wait_s", e.sync_wait);
  visit("optimizer_s", e.optimizer);
}

template <>
constexpr std::string_view kKind<EvalEvent> = "eval";
void visit_fields(Is<EvalEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit("loss", e.loss);
}

template <>
constexpr std::string_view kKind<CalibrationEvent> = "calibration";
void visit_fields(Is<CalibrationEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit("calibration", e.calibration);
  visit("low", e.low);
  visit("high", e.high);
  visit("lr_aware", e.lr_aware);
  visit("gns", e.gns);
  visit("lr", e.lr);
}

template <>
constexpr std::string_view kKind<DecisionEvent> = "decision";
void visit_fields(Is<DecisionEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("candidates", e.candidates);
  visit.object("best", [&e](auto& best) {
    best.short_plan("plan", e.best_plan);
    best.batch("global_batch", e.best_global_batch);
  });
  visit("gain", e.gain);
  visit("action", e.action);
  visit("why", e.why);
  visit.or_null("reason", e.reason);
}

template <>
constexpr std::string_view kKind<ReconfigureEvent> = "reconfigure";
void visit_fields(Is<ReconfigureEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit.short_plan("from", e.from);
  visit.short_plan("to", e.to);
  visit.batch("global_batch_from", e.global_batch_from);
  visit.batch("global_batch_to", e.global_batch_to);
  visit("done", e.done);
  visit.or_null("error", e.error);
  visit("pause_s", e.pause);
  visit("bytes_moved", e.bytes_moved);
  visit.later("bytes_read", e.bytes_read);
  visit("groups_s", e.groups);
  visit("allocate_s", e.allocate);
  visit("transfer_s", e.transfer);
  visit("commit_s", e.commit);
}

template <>
constexpr std::string_view kKind<CheckpointEvent> = "checkpoint";
void visit_fields(Is<CheckpointEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit.or_null("path", e.path);
  visit.or_null("error", e.error);
  visit("bytes", e.bytes);
  visit("copy_s", e.copy);
  visit("write_s", e.write);
}

template <>
constexpr std::string_view kKind<BadStepEvent> = "bad_step";
void visit_fields(Is<BadStepEvent> auto& e, auto& visit) {
  visit("step", e.step);
  visit("samples", e.samples);
  visit("loss", e.loss);
  visit("grad_norm", e.grad_norm);
  visit("action", e.action);
  visit.or_null("from", e.from);
  visit("why", e.why);
}

template <>
constexpr std::string_view kKind<EndEvent> = "end";
void visit_fields(Is<EndEvent> auto& e, auto& visit) {
  visit("reason", e.reason);
  visit.or_null("error", e.error);
  visit("step", e.step);
  visit("samples", e.samples);
  visit("loss", e.loss);
  visit("held_out_loss", e.held_out_loss);
  visit("seconds", e.seconds);
  visit("tokens_per_s", e.tokens_per_s);
  visit.later("moves", e.moves);
  visit.later("pause_s", e.pause);
}

Json json_of(const std::string& text) { return text; }
Json json_of(std::int64_t n) { return n; }
Json json_of(bool yes) { return yes; }
Json json_of(double number) { return number_or_null(number); }
Json json_of(const std::optional<double>& number) { return number_or_null(number); }
Json json_of(Seconds time) { return number_or_null(time.v); }
Json json_of(Bytes amount) { return static_cast<std::int64_t>(std::llround(amount.v)); }
Json json_of(std::uint64_t hash) { return checksum_text(hash); }
template <typename Enum>
requires std::is_enum_v<Enum> Json json_of(Enum value) { return to_string(value); }
Json json_of(const ParallelPlan& plan) { return plan_to_json(plan); }
Json json_of(const std::optional<FlopsPerSec>& rate) {
  return rate ? number_or_null(rate->v) : Json(nullptr);
}
Json json_of(const std::optional<ClusterSpec>& cluster) {
  return cluster ? cluster_to_json(*cluster) : Json(nullptr);
}
// [[samples, mean squared norm, number of norms], …]
Json json_of(const std::vector<NormEntry>& norms) {
  if (norms.empty()) return nullptr;
  Json all = Json::array();
  for (const NormEntry& norm : norms) {
    all.push_back(
        {number_or_null(norm.batch), number_or_null(norm.value), number_or_null(norm.count)});
  }
  return all;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
// {"lr": {"from": "0.001", "to": "0.0003"}, …}
Json json_of(const std::vector<OptionChange>& changes) {
  Json all = Json::object();
  for (const OptionChange& change : changes) {
    all[change.name] = {{"from", text_or_null(change.from)}, {"to", text_or_null(change.to)}};
  }
  return all;
}

class EventPrinter {
 public:
  explicit EventPrinter(Json& to) : to_(to) {}

  template <typename T>
  void operator()(const char* key, const T& field) {
    to_[key] = json_of(field);
  }
  template <typename T>
  void later(const char* key, const T& field) {
    to_[key] = json_of(field);
  }
  void or_null(const char* key, const std::string& text) { to_[key] = text_or_null(text); }
  void short_plan(const char* key, const ParallelPlan& plan) { to_[key] = short_name(plan); }
  void batch(const char* key, std::int64_t n) { to_[key] = n; }
  template <typename Members>
  void object(const char* key, const Members& members) {
    Json inner = Json::object();
    EventPrinter printer(inner);
    members(printer);
    to_[key] = std::move(inner);
  }

 private:
  Json& to_;
};

constexpr std::int64_t kMaxCount = std::int64_t{1} << 60;
constexpr std::int64_t kMaxBatch = std::int64_t{1} << 30;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 53;  // a double is exact up to here
constexpr double kMaxSeconds = 1e12;
constexpr double kMaxNumber = std::numeric_limits<double>::max();

// Fills in an event's fields. finish() returns the first error.
class EventParser {
 public:
  EventParser(const Json& json, const std::string& where)
      : json_(json), where_(where), from_(json, where) {}

  Result<void> finish() const { return from_.finish(); }

  void operator()(const char* key, std::string& text) { text = from_.text(key); }
  void operator()(const char* key, std::int64_t& n) { n = from_.integer(key, 0, kMaxCount); }
  void operator()(const char* key, Seconds& time) {
    time = Seconds(from_.number(key, 0, kMaxSeconds));
  }
  void operator()(const char* key, Bytes& amount) {
    amount = Bytes(static_cast<double>(from_.integer(key, 0, kMaxBytes)));
  }
  void operator()(const char* key, bool& yes) {
    if (!from_.has(key)) fail(key, "missing; want true or false");
    yes = from_.boolean_or(key, false);
  }
  // Null stands for a number that was not finite. A missing key is an error.
  void operator()(const char* key, double& number) {
    const bool is_null = json_.is_object() && json_.contains(key) && json_[key].is_null();
    number = is_null ? NAN : from_.number(key, -kMaxNumber, kMaxNumber);
  }
  void operator()(const char* key, std::optional<double>& number) {
    number.reset();
    if (from_.has(key)) number = from_.number(key, -kMaxNumber, kMaxNumber);
  }
  void operator()(const char* key, std::optional<FlopsPerSec>& rate) {
    rate.reset();
    if (from_.has(key)) rate = FlopsPerSec(from_.number(key, 0, kMaxNumber));
  }
  void operator()(const char* key, std::uint64_t& hash) {
    take(hash, parse_checksum(from_.text(key), key));
  }
  void operator()(const char* key, DeviceKind& kind) { one_of(key, kDeviceKinds, kind); }
  void operator()(const char* key, Precision& precision) { one_of(key, kPrecisions, precision); }
  void operator()(const char* key, Adapt& adapt) { one_of(key, kAdapts, adapt); }
  void operator()(const char* key, DecisionAction& action) {
    one_of(key, kDecisionActions, action);
  }
  void operator()(const char* key, OnBadStep& action) { one_of(key, kOnBadSteps, action); }
  void operator()(const char* key, EndReason& reason) { one_of(key, kEndReasons, reason); }
  void operator()(const char* key, ParallelPlan& plan) {
    if (!from_.has(key)) return fail(key, "missing; want a plan");
    auto read = plan_from_json(from_.child(key), fmt::format("{}: {}", where_, key));
    if (!read) return from_.fail(read.error());
    plan = std::move(read->plan);
  }
  void operator()(const char* key, std::optional<ClusterSpec>& cluster) {
    cluster.reset();
    if (!from_.has(key)) return;
    auto read = cluster_from_json(from_.child(key), fmt::format("{}: {}", where_, key));
    if (!read) return from_.fail(read.error());
    cluster = std::move(read).value();
  }
  void operator()(const char* key, std::vector<NormEntry>& norms) {
    norms.clear();
    if (!from_.has(key)) return;
    const Json& entries = from_.child(key);
    if (!entries.is_array()) {
      return fail(key, fmt::format("got {}; want [[samples, norm, count], …]", shown(entries)));
    }
    for (const Json& entry : entries) {
      if (!is_norm(entry)) {
        return fail(key, fmt::format("got {} at entry {}; want [samples, norm, count]",
                                     shown(entry), norms.size()));
      }
      norms.push_back({number_of(entry[0]), number_of(entry[1]), number_of(entry[2])});
    }
  }
  void operator()(const char* key, std::vector<OptionChange>& changes) {
    changes.clear();
    const Json& entries = from_.child(key);
    if (!entries.is_object()) {
      return fail(key, fmt::format("got {}; want an object of options", shown(entries)));
    }
    for (const auto& [name, entry] : entries.items()) {
      FieldReader change(entry, fmt::format("{}: {}: {}", where_, key, name));
      changes.push_back({name, change.text_or("from", ""), change.text_or("to", "")});
      if (auto finished = change.finish(); !finished) return from_.fail(finished.error());
    }
  }
  template <typename T>
  void later(const char* key, T& field) {
    if (from_.has(key)) (*this)(key, field);
  }
  void or_null(const char* key, std::string& text) { text = from_.text_or(key, ""); }
  void short_plan(const char* key, ParallelPlan& plan) {
    const Result<PartialPlan> parsed = parse_plan_text(from_.text(key), key);
    take(plan, parsed ? Result<ParallelPlan>(parsed->plan) : Result<ParallelPlan>(parsed.error()));
  }
  void batch(const char* key, std::int64_t& n) { n = from_.integer(key, 1, kMaxBatch); }
  template <typename Members>
  void object(const char* key, const Members& members) {
    EventParser inner(from_.child(key), fmt::format("{}: {}", where_, key));
    members(inner);
    if (auto finished = inner.finish(); !finished) from_.fail(finished.error());
  }

 private:
  static bool is_norm(const Json& entry) {
    if (!entry.is_array() || entry.size() != 3) return false;
    for (const Json& number : entry) {
      if (!number.is_number() && !number.is_null()) return false;
    }
    return true;
  }
  static std::string shown(const Json& json) {
    return shortened(json.dump(-1, ' ', true, Json::error_handler_t::replace), kMaxShown);
  }
  static double number_of(const Json& json) { return json.is_null() ? NAN : json.get<double>(); }

  template <typename Enum, std::size_t n>
  void one_of(const char* key, const std::array<Enum, n>& values, Enum& field) {
    const std::string text = from_.text(key);
    std::vector<std::string> names;
    for (const Enum value : values) {
      if (text == to_string(value)) {
        field = value;
        return;
      }
      names.emplace_back(to_string(value));
    }
    fail(key, fmt::format("got {:?}; want {}", text.substr(0, kMaxShown), join_or(names)));
  }

  void fail(const char* key, const std::string& what) {
    from_.fail(error_in(where_, field_error(key, "{}", what)));
  }
  // Takes a parsed value, whose error already names the field.
  template <typename T>
  void take(T& field, Result<T> parsed) {
    if (!parsed) return from_.fail(error_in(where_, parsed.error()));
    field = std::move(parsed).value();
  }

  const Json& json_;
  std::string where_;
  FieldReader from_;
};

// Returns an empty event of a kind; nullopt if the kind is unknown.
template <std::size_t i = 0>
std::optional<Event> empty_event(std::string_view kind) {
  if constexpr (i < std::variant_size_v<Event>) {
    using E = std::variant_alternative_t<i, Event>;
    static_assert(!kKind<E>.empty());
    return kind == kKind<E> ? Event(E{}) : empty_event<i + 1>(kind);
  }
  return std::nullopt;
}

}  // namespace

Json event_to_json(const TimedEvent& event) {
  return std::visit(
      [&]<typename E>(const E& e) {
        Json json = {{"event", kKind<E>}, {"t", number_or_null(event.t.v)}};
        EventPrinter printer(json);
        visit_fields(e, printer);
        return json;
      },
      event.event);
}

Result<std::optional<TimedEvent>> parse_event(const Json& json, const std::string& where) {
  TimedEvent timed;
  std::string kind;
  EventParser reader(json, where);
  reader("event", kind);
  reader("t", timed.t);
  COPUS_TRY_VOID(reader.finish());
  std::optional<Event> event = empty_event(kind);
  if (!event) return std::optional<TimedEvent>();
  std::visit([&](auto& e) { visit_fields(e, reader); }, *event);
  COPUS_TRY_VOID(reader.finish());
  timed.event = std::move(*event);
  return std::optional(std::move(timed));
}

}  // namespace copus
