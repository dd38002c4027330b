#include "apps/copus/args/train_request.h"

#include "apps/copus/args/resumed_run.h"
#include "copus/args/config_file.h"
#include "copus/train/options/open_data.h"
#include "copus/train/options/resume_rules.h"

namespace copus {

Result<TrainRequest> request_training(TrainArgs& args) {
  if (args.config.known()) COPUS_TRY_VOID(read_config(args, *args.config, From::kConfig));
  TrainRequest request;
  COPUS_TRY(request.environment, rank_environment(environment_variable));
  const std::optional<RankEnvironment>& environment = request.environment;
  COPUS_TRY_VOID(read_resumed_config(args, environment));
  COPUS_TRY(request.ranks, wanted_ranks(args, environment));
  const int local_ranks = environment ? environment->local_world_size : request.ranks;
  COPUS_TRY(request.run, resolve_run(args, request.ranks, local_ranks));
  if (request.run.checkpoint.resume) {
    request.run.changed = changed_options(request.run.run_dir, args);
  } else {
    COPUS_TRY_VOID(check_no_checkpoints(request.run.run_dir));
  }
  COPUS_TRY(request.restarts, resolve_restarts(args.failures, request.ranks));
  if (environment && request.restarts.max_restarts > 0 &&
      environment->launcher != Launcher::kCopus) {
    return field_error("--max-restarts",
                       "got {} under {}; want 0: let {} restart the ranks, with "
                       "--resume",
                       request.restarts.max_restarts, to_string(environment->launcher),
                       to_string(environment->launcher));
  }
  // Ranks that a launcher started open the data after they have met. A rank that ended here,
  // because it cannot open the data, would leave the others waiting at the meeting point.
  if (environment) return request;
  COPUS_TRY(const Dataset data, open_data(request.run));
  if (request.run.checkpoint.resume) {
    COPUS_TRY_VOID(check_resume(request.run, data, request.ranks));
  }
  return request;
}

}  // namespace copus
