// Speaks the protocol of specs/subprocess-protocol.md: one line in, one line out.
//
//     g++ -std=c++17 -O2 -o scheduler main.cpp
//     pytest --kvsched-command ./scheduler
#include <memory>
#include <sstream>

#include "json.h"
#include "scheduler.h"

// `[first, count]` in a list of integers stands for `count` consecutive ones.
static std::vector<int64_t> integers(const Json& list) {
  std::vector<int64_t> made;
  for (const Json& item : list.items) {
    if (item.kind == Json::Int) { made.push_back(item.integer); continue; }
    for (int64_t i = 0; i < item.items[1].integer; ++i) made.push_back(item.items[0].integer + i);
  }
  return made;
}

static Json list_of(const std::vector<int64_t>& values) {
  Json made = Json::list();
  for (int64_t value : values) made.items.push_back(value);
  return made;
}

static Json list_of(const std::set<Id>& ids) {  // ascending
  Json made = Json::list();
  for (const Id& id : ids) made.items.push_back(id);
  return made;
}

static Json only(Json value) { return Json(std::vector<Json>{std::move(value)}); }  // of the only group

static std::unique_ptr<Scheduler> start(const Json& config) {
  Limits limits{config.at("max_model_len").integer, config.at("max_num_seqs").integer,
                config.at("max_num_batched_tokens").integer, config.at("num_blocks").integer,
                config.at("block_size").integer};
  return std::make_unique<Scheduler>(limits);
}

static Json add(Scheduler& scheduler, const Json& asked) {
  Request request;
  request.id = asked.at("request_id").text;
  request.tokens = integers(asked.at("prompt_token_ids"));
  request.num_prompt_tokens = int64_t(request.tokens.size());
  request.max_tokens = asked.at("sampling_params").at("max_tokens").integer;
  request.client = asked.at("client_index").integer;
  scheduler.add(std::move(request));
  return Json::object();
}

static Json finish(Scheduler& scheduler, const Json& ids) {
  std::vector<Id> named;
  for (const Json& id : ids.items) named.push_back(id.text);
  scheduler.finish(named, ids.kind == Json::Null);
  return Json::object();
}

static Json pause(Scheduler& scheduler, const std::string& state) {
  scheduler.set_pause(state == "unpaused" ? Pause::None : state == "paused_new" ? Pause::New : Pause::All);
  return Json::object();
}

// Requests that are sent whole: first the new ones, then those that go on after a preemption.
static Json new_requests(const Step& step) {
  Json made = Json::list();
  for (bool resumed : {false, true})
    for (const Row& row : step.rows)
      if (resumed ? row.is_resumed : row.is_new)
        made.items.push_back(Json::object()
                                 .set("request_id", row.id)
                                 .set("prompt_token_ids", list_of(row.prompt))
                                 .set("block_ids", only(list_of(row.new_blocks)))
                                 .set("num_computed_tokens", row.num_computed_before)
                                 .set("prefill_token_ids", list_of(row.all_tokens)));
  return made;
}

static Json cached_requests(const Step& step) {
  Json ids = Json::list(), blocks = Json::list(), computed = Json::list(), outputs = Json::list();
  for (const Row& row : step.rows) {
    if (row.is_new || row.is_resumed) continue;
    ids.items.push_back(row.id);
    blocks.items.push_back(row.new_blocks.empty() ? Json() : only(list_of(row.new_blocks)));
    computed.items.push_back(row.num_computed_before);
    outputs.items.push_back(row.num_output_before);
  }
  return Json::object()
      .set("request_ids", ids)
      .set("resumed_request_ids", Json::list())
      .set("all_token_ids", Json::list())
      .set("new_block_ids", blocks)
      .set("num_computed_tokens", computed)
      .set("num_output_tokens", outputs);
}

static Json schedule(Scheduler& scheduler) {
  Step step = scheduler.schedule();
  Json batch = Json::list();
  int64_t total = 0;
  for (const Row& row : step.rows) {
    batch.items.push_back(Json(std::vector<Json>{row.id, row.num_tokens}));
    total += row.num_tokens;
  }
  Json output = Json::object()
                    .set("step_id", step.id)
                    .set("scheduled_new_requests", new_requests(step))
                    .set("scheduled_cached_requests", cached_requests(step))
                    .set("num_scheduled_tokens", batch)
                    .set("total_num_scheduled_tokens", total)
                    .set("preempted_request_ids", list_of(step.preempted))
                    .set("finished_request_ids", list_of(step.finished))
                    .set("new_block_ids_to_zero", Json());
  return Json::object().set("output", output);
}

static Json told_one(const Told& told) {
  Json stats;
  if (told.has_stats)
    stats = Json::object()
                .set("num_prompt_tokens", told.num_prompt_tokens)
                .set("num_computed_tokens", told.num_prompt_tokens)
                .set("num_local_cached_tokens", 0)
                .set("num_cache_creation_tokens", 0);
  return Json::object()
      .set("request_id", told.id)
      .set("new_token_ids", list_of(told.tokens))
      .set("finish_reason", told.is_end ? Json("length") : Json())
      .set("stop_reason", Json())
      .set("prefill_stats", stats);
}

static Json update(Scheduler& scheduler, const Json& result) {
  std::map<Id, std::vector<int64_t>> sampled;
  for (const Json& pair : result.at("sampled_token_ids").items) sampled[pair.items[0].text] = integers(pair.items[1]);
  std::vector<int64_t> order;  // of the clients: that of their first output
  std::map<int64_t, Json> outputs;
  for (const Told& told : scheduler.update(sampled)) {
    if (outputs.find(told.client) == outputs.end()) { order.push_back(told.client); outputs[told.client] = Json::list(); }
    outputs[told.client].items.push_back(told_one(told));
  }
  Json clients = Json::list();
  for (int64_t client : order) {
    Json of_client = Json::object()
                         .set("outputs", outputs[client])
                         .set("finished_request_ids", Json())
                         .set("scheduler_stats", Json());
    clients.items.push_back(Json(std::vector<Json>{client, of_client}));
  }
  return Json::object().set("emitted", Json::object().set("clients", clients).set("kv_events", Json::list()));
}

static Json happen(Scheduler& scheduler, const Json& event) {
  const std::string& kind = event.at("kind").text;
  if (kind == "add_request") return add(scheduler, event.at("request"));
  if (kind == "schedule") return schedule(scheduler);
  if (kind == "update") return update(scheduler, event.at("result"));
  if (kind == "finish_requests") return finish(scheduler, event.at("request_ids"));
  if (kind == "set_pause_state") return pause(scheduler, event.at("pause_state").text);
  return Json::object().set("error", "no such event: " + kind);
}

int main() {
  std::unique_ptr<Scheduler> scheduler;
  std::string line;
  while (std::getline(std::cin, line)) {
    Json message = JsonReader(line).read(), answer;
    if (const Json* event = message.find("event")) {
      answer = scheduler ? happen(*scheduler, *event) : Json::object().set("error", "no header came before");
    } else if (const Json* config = message.find("config")) {
      scheduler = start(*config);
      answer = Json::object().set("ready", true);
    } else {
      std::vector<Json> features{"pause", "reused_ids", "several_clients"};
      answer = Json::object().set("features", Json(features));
    }
    write(std::cout, answer);
    std::cout << std::endl;
  }
  return 0;
}
