// copus traffic: prints how much each GPU sends to each other GPU, and when.
#include "copus/tuner/traffic.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "apps/copus/command_line.h"
#include "apps/copus/commands.h"
#include "apps/copus/common.h"
#include "copus/base/text.h"
#include "copus/tuner/traffic_pattern.h"
#include "copus/tuner/traffic_svg.h"

namespace copus {
namespace {

struct TrafficArgs : OptionGroup {
  JobArgs job{this, Required()};
  PlanOption plan{this};
  Option<double> skew{
      this, "--skew", number(0, kMaxSkew),
      "skew of the experts' gate: expert i gets tokens in proportion to (i+1)^-skew; 0: balanced",
      0};
  Option<std::int64_t> gpu{this, "--gpu", integer(0, kMaxGpus - 1),
                           "the GPU whose pattern in time is shown", 0};
  Option<std::string> csv{this, "--csv", text("FILE"),
                          "write the matrix: source,destination,dimension,bytes"};
  Option<std::string> pattern{this, "--pattern", text("FILE"),
                              "write the bursts of --gpu: start_s,end_s,dimension,bytes"};
  Option<std::string> svg{this, "--svg", text("FILE"),
                          "draw matrix, shares, links and pattern into this file"};
};

// The data that the text, the JSON and the drawing show.
struct Report {
  Traffic traffic;
  LinkLoads links;
  TrafficPattern pattern;
};

struct DimensionFacts {
  Bytes bytes;
  Bytes inside_nodes;
  Flow largest;
  std::int64_t bursts = 0;
};

std::vector<DimensionFacts> facts_of(const Report& report) {
  std::vector<DimensionFacts> facts(kDimensions);
  for (const Flow& flow : report.traffic.flows) {
    DimensionFacts& f = facts[static_cast<std::size_t>(flow.dimension)];
    f.bytes += flow.bytes;
    const std::int64_t per_node = report.traffic.gpus_per_node;
    if (flow.source / per_node == flow.destination / per_node) f.inside_nodes += flow.bytes;
    if (flow.bytes > f.largest.bytes) f.largest = flow;
  }
  for (const Burst& b : report.pattern.bursts) {
    ++facts[static_cast<std::size_t>(b.dimension)].bursts;
  }
  return facts;
}

struct LinkRow {
  const char* key;
  const char* name;
  const char* at;
  LinkLoad LinkLoads::*load;
};
constexpr LinkRow kLinkRows[] = {
    {"gpu_out", "GPU's links, out", "GPU", &LinkLoads::gpu_out},
    {"gpu_in", "GPU's links, in", "GPU", &LinkLoads::gpu_in},
    {"node_out", "node's network, out", "node", &LinkLoads::node_out},
    {"node_in", "node's network, in", "node", &LinkLoads::node_in},
};

std::string share_text(double share) {
  return share > 0 && share < 0.0001 ? "<0.01%" : fmt::format("{:.2f}%", 100 * share);
}

void print_text(const Workload& job, const ParallelPlan& plan, const Report& report, double skew) {
  const Traffic& traffic = report.traffic;
  const TrafficPattern& pattern = report.pattern;
  const double total = traffic.total().v;
  fmt::print("{}\nplan {}\n\n", describe(job), describe_plan(job, plan));
  if (traffic.flows.empty()) {
    fmt::print("nothing is sent: one GPU works alone\n");
    return;
  }
  const auto gpus = static_cast<double>(traffic.gpus);
  fmt::print("sent per step: {}, {} by each GPU\n", human_bytes(total), human_bytes(total / gpus));

  const std::vector<DimensionFacts> facts = facts_of(report);
  std::vector<std::vector<std::string>> rows, times;
  for (const Dimension dimension : kAllDimensions) {
    const DimensionFacts& f = facts[static_cast<std::size_t>(dimension)];
    if (f.bytes.v <= 0) continue;
    rows.push_back({std::string(to_string(dimension)), share_text(f.bytes.v / total),
                    human_bytes(f.bytes.v), human_bytes(f.bytes.v / gpus),
                    share_text(f.inside_nodes / f.bytes), human_bytes(f.largest.bytes.v),
                    fmt::format("GPU {} to {}", f.largest.source, f.largest.destination)});
    if (f.bursts == 0) continue;
    const Seconds on = pattern.on_time(dimension);
    times.push_back({std::string(to_string(dimension)), share_text(on / pattern.span),
                     fmt::format("{}", f.bursts),
                     human_seconds(on.v / static_cast<double>(f.bursts))});
  }
  fmt::print("{}\n", format_table({"dimension", "share", "bytes", "per GPU", "inside nodes",
                                   "largest flow", "<"},
                                  rows));

  rows.clear();
  for (const LinkRow& row : kLinkRows) {
    const LinkLoad& load = report.links.*row.load;
    if (load.worst.v <= 0) continue;
    rows.push_back({row.name, fmt::format("{} {}", row.at, load.worst_at),
                    human_bytes(load.worst.v), human_bytes(load.mean.v),
                    human_seconds(load.time.v)});
  }
  fmt::print("{}\n", format_table({"link", "<busiest", "load", "mean load", "at full rate"}, rows));

  const std::int64_t all = plan.micro_batches(job.global_batch);
  fmt::print("GPU {} over {}{}\n", pattern.gpu, human_seconds(pattern.span.v),
             pattern.micro_batches < all
                 ? fmt::format(" ({} of {} micro-batches)", pattern.micro_batches, all)
                 : "");
  fmt::print("{}", format_table({"sends", "on", "bursts", "mean burst"}, times));
  if (skew > 0) fmt::print("times are those of a balanced gate; bytes follow the skew\n");
}

Json to_json(const ParallelPlan& plan, const Report& report, double skew) {
  const std::vector<DimensionFacts> facts = facts_of(report);
  const double total = report.traffic.total().v;
  Json json;
  json["plan"] = plan_to_json(plan);
  json["skew"] = skew;
  json["gpus"] = report.traffic.gpus;
  json["flows"] = report.traffic.flows.size();
  json["bytes_per_step"] = total;
  json["dimensions"] = Json::object();
  for (const Dimension dimension : kAllDimensions) {
    const DimensionFacts& f = facts[static_cast<std::size_t>(dimension)];
    if (f.bytes.v <= 0) continue;
    Json entry;
    entry["bytes"] = f.bytes.v;
    entry["share"] = f.bytes.v / total;
    entry["inside_nodes"] = f.inside_nodes / f.bytes;
    entry["largest_flow"] = {{"source", f.largest.source},
                             {"destination", f.largest.destination},
                             {"bytes", f.largest.bytes.v}};
    json["dimensions"][std::string(to_string(dimension))] = entry;
  }
  for (const LinkRow& row : kLinkRows) {
    const LinkLoad& load = report.links.*row.load;
    json["links"][row.key] = {{"busiest", load.worst_at},
                              {"bytes", load.worst.v},
                              {"mean_bytes", load.mean.v},
                              {"time_at_full_rate_s", load.time.v}};
  }
  Json& pattern = json["pattern"];
  pattern["gpu"] = report.pattern.gpu;
  pattern["span_s"] = report.pattern.span.v;
  pattern["micro_batches"] = report.pattern.micro_batches;
  pattern["on"] = Json::object();
  for (const Dimension dimension : kAllDimensions) {
    const DimensionFacts& f = facts[static_cast<std::size_t>(dimension)];
    if (f.bursts == 0) continue;
    pattern["on"][std::string(to_string(dimension))] = {
        {"seconds", report.pattern.on_time(dimension).v}, {"bursts", f.bursts}};
  }
  return json;
}

std::string traffic_csv(const Traffic& traffic) {
  std::string csv = "source,destination,dimension,bytes\n";
  for (const Flow& flow : traffic.flows) {
    fmt::format_to(std::back_inserter(csv), "{},{},{},{:.0f}\n", flow.source, flow.destination,
                   to_string(flow.dimension), flow.bytes.v);
  }
  return csv;
}

std::string pattern_csv(const TrafficPattern& pattern) {
  std::string csv = "start_s,end_s,dimension,bytes\n";
  for (const Burst& b : pattern.bursts) {
    fmt::format_to(std::back_inserter(csv), "{:.9f},{:.9f},{},{:.0f}\n", b.start.v, b.end.v,
                   to_string(b.dimension), b.bytes.v);
  }
  return csv;
}

Result<void> write_files(const TrafficArgs& args, const Workload& job, const ParallelPlan& plan,
                         const Report& report) {
  if (args.csv.known()) COPUS_TRY_VOID(write_file(*args.csv, traffic_csv(report.traffic)));
  if (args.pattern.known()) COPUS_TRY_VOID(write_file(*args.pattern, pattern_csv(report.pattern)));
  if (args.svg.known()) {
    std::string subtitle = describe(job);
    if (const auto line = subtitle.find('\n'); line != std::string::npos) {
      subtitle.replace(line, 1, "; ");
    }
    const TrafficPicture picture{
        fmt::format("Who talks to whom: {} as {}", job.model.name, short_name(plan)), subtitle,
        report.traffic, report.links, report.pattern};
    COPUS_TRY_VOID(write_file(*args.svg, traffic_svg(picture)));
  }
  return {};
}

Result<int> run_traffic(const TrafficArgs& args) {
  const std::string csv = args.csv.value_or(""), pattern = args.pattern.value_or("");
  const std::string svg = args.svg.value_or("");
  COPUS_TRY_VOID(
      check_output_paths({{"--csv", csv}, {"--pattern", pattern}, {"--svg", svg}}, *args.job.json));
  COPUS_TRY(const Workload job, load_job(args.job));
  COPUS_TRY(const ParallelPlan plan, load_plan(*args.plan, job));
  const double skew = *args.skew;
  if (skew > 0 && !job.model.is_moe()) {
    return field_error("--skew", "got {} for {}; want 0, because it has no experts", skew,
                       job.model.name);
  }
  const std::int64_t gpu = *args.gpu;
  if (gpu >= plan.gpus()) {
    return field_error("--gpu", "got \"{}\"; want an integer from 0 to {}", gpu, plan.gpus() - 1);
  }
  const StepModel step = step_model(job);
  Report report;
  COPUS_TRY(report.traffic, compute_traffic(step, plan, skew));
  report.links = link_loads(report.traffic, job.cluster);
  report.pattern = traffic_pattern(step, plan, skew, gpu);
  COPUS_TRY_VOID(write_files(args, job, plan, report));
  // If a file goes to standard output, nothing else is printed there.
  if (csv == "-" || pattern == "-" || svg == "-") return kOk;
  if (*args.job.json) {
    fmt::print("{}\n", to_json(plan, report, skew).dump(2));
  } else {
    print_text(job, plan, report, skew);
  }
  return kOk;
}

}  // namespace

void add_traffic_command(CommandLine& line) {
  line.add<TrafficArgs>(
      {"traffic", "Show who talks to whom: bytes per GPU pair, link and moment",
       "copus traffic --model llama-3-70b --cluster 8x8xH100-80GB-SXM --global-batch 128 --plan "
       "tp=8,pp=4,zero=1,sp=1 --svg traffic.svg"},
      run_traffic);
}

}  // namespace copus
