#include "copus/cost/spread.h"

#include <algorithm>

#include "copus/base/text.h"
#include "copus/spec/catalog.h"

namespace copus {
namespace {

struct Entry {
  std::string framework, gpu, precision;
  Spread spread;
};

Spread spread_from(FieldReader& fields) {
  Spread spread;
  spread.time = fields.number("time", 0, 10);
  spread.order = fields.number("order", 0, 10);
  return spread;
}

Result<Entry> entry_from(const Json& json, const std::string& where) {
  FieldReader fields(json, where);
  Entry entry;
  entry.framework = fields.text("framework");
  entry.gpu = fields.text("gpu");
  entry.precision = fields.text("precision");
  entry.spread = spread_from(fields);
  entry.spread.runs = fields.integer("runs", 1, 1'000'000'000);
  entry.spread.runs_of = entry.framework;
  fields.ignore("of");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  return entry;
}

// Whether runs in `named` say how far predictions in `precision` are off. Tables of runs say fp8,
// however its elements are scaled.
bool covers(const std::string& named, Precision precision) {
  const bool scaled = precision == Precision::kFp8Current || precision == Precision::kMxfp8;
  return named == to_string(precision) || (scaled && named == to_string(Precision::kFp8));
}

void widen(Spread& spread, const Spread& other) {
  spread.time = std::max(spread.time, other.time);
  spread.order = std::max(spread.order, other.order);
}

}  // namespace

Result<Spread> prediction_spread(const FrameworkProfile& framework, const std::string& gpu,
                                 Precision precision) {
  const std::string where = "spreads.json";
  COPUS_TRY(const std::string text, catalog_spreads_text());
  COPUS_TRY(const Json json, parse_json(text, where));
  FieldReader fields(json, where);
  fields.ignore("source");
  const Json& widest = fields.child("unseen");
  const Json& listed = fields.child("spreads");
  fields.refuse_unknown();
  COPUS_TRY_VOID(fields.finish());
  if (!widest.is_object() || !listed.is_array()) {
    return make_error("{}: want an object \"unseen\" and a list \"spreads\"", where);
  }
  FieldReader unseen_fields(widest, where + ": unseen");
  const Spread unlike_any = spread_from(unseen_fields);
  COPUS_TRY_VOID(unseen_fields.finish());

  std::vector<Entry> entries;
  for (const Json& each : listed) {
    COPUS_TRY(Entry entry, entry_from(each, where + ": spreads"));
    entries.push_back(std::move(entry));
  }
  const auto any = [&](auto&& wanted) {
    return std::any_of(entries.begin(), entries.end(), wanted);
  };
  const auto has_runs = [&](const std::string& name) {
    return any([&](const Entry& entry) { return entry.framework == name; });
  };
  Spread spread;
  const bool own_runs = has_runs(framework.name);
  const bool alone = !own_runs && !has_runs(framework.analogy);
  if (!own_runs) spread.unseen.push_back(framework.title);
  const auto like = [&](const Entry& entry, bool same_precision) {
    const bool near = entry.framework == framework.name || entry.framework == framework.analogy;
    return (near || alone) && entry.gpu == gpu &&
           (!same_precision || covers(entry.precision, precision));
  };
  // The framework's own runs come first. Those of its analogy fill what it lacks.
  for (const std::string& name : {framework.name, framework.analogy}) {
    for (const Entry& entry : entries) {
      if (entry.framework != name) continue;
      if (own_runs && like(entry, true)) return entry.spread;
      widen(spread, entry.spread);
    }
  }
  const std::string runs = spread.unseen.empty() ? framework.title + " " : "";
  if (!any([&](const Entry& entry) { return like(entry, false); })) {
    spread.unseen.push_back(fmt::format("{}on {}", runs, gpu));
  } else if (!any([&](const Entry& entry) { return like(entry, true); })) {
    spread.unseen.push_back(fmt::format("{}in {} on {}", runs, to_string(precision), gpu));
  }
  widen(spread, unlike_any);
  return spread;
}

}  // namespace copus
