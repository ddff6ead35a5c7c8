// A small scheduler: first come, first served; prompts in chunks; blocks without a prefix cache; preemption by
// recomputation; aborts and pauses. Where a compile flag plants a fault, the comment says what is right.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

using Id = std::string;

struct Limits {
  int64_t max_model_len, max_num_seqs, max_num_batched_tokens, num_blocks, block_size;
};

struct Request {
  Id id;
  std::vector<int64_t> tokens;  // prompt and output
  int64_t num_prompt_tokens, max_tokens, client;
  int64_t num_computed = 0;
  bool was_preempted = false, was_told = false;
  std::vector<int64_t> blocks;

  int64_t num_output() const { return int64_t(tokens.size()) - num_prompt_tokens; }
};

struct Row {
  Id id;
  int64_t num_tokens, num_computed_before, num_output_before;
  bool is_new, is_resumed;
  std::vector<int64_t> new_blocks, all_tokens, prompt;
};

struct Step {
  int64_t id;
  std::vector<Row> rows;  // those that ran before, then those that were admitted
  std::set<Id> preempted, finished;
};

struct Told {
  Id id;
  std::vector<int64_t> tokens;
  bool is_end, has_stats;
  int64_t num_prompt_tokens, client;
};

enum class Pause { None, New, All };

class Scheduler {
 public:
  explicit Scheduler(Limits limits) : limits_(limits) {
    for (int64_t block = 1; block < limits.num_blocks; ++block) free_.push_back(block);  // 0 is never used
  }

  void add(Request request) {
    added_.push_back(request.id);
    waiting_.push_back(request.id);
    requests_[request.id] = std::move(request);
  }

  void set_pause(Pause pause) { pause_ = pause; }

  void finish(std::vector<Id> ids, bool everybody) {
    if (everybody) ids = added_;  // a copy: it shrinks with every end
    for (const Id& id : ids) end(id);
  }

  Step schedule() {
    Step step{++num_steps_, {}, {}, {}};
    budget_ = pause_ == Pause::All ? 0 : limits_.max_num_batched_tokens;
    preempted_.clear();
    schedule_running(step);
    if (preempted_.empty() && pause_ == Pause::None) schedule_waiting(step);
    for (const Row& row : step.rows) requests_[row.id].num_computed += row.num_tokens;
    step.preempted = preempted_;
    step.finished.swap(finished_);
    in_flight_.push_back(step);
    return step;
  }

  // `sampled` has the tokens of each row that sampled. Ends are told in the order of the batch.
  std::vector<Told> update(const std::map<Id, std::vector<int64_t>>& sampled) {
    Step step = in_flight_.front();
    in_flight_.pop_front();
    std::vector<Told> told;
    std::vector<Id> ended;
    for (const Row& row : step.rows) {
      auto found = requests_.find(row.id);
      auto tokens = sampled.find(row.id);
      if (found == requests_.end() || tokens == sampled.end() || tokens->second.empty()) continue;
      Request& request = found->second;
      Told one{row.id, {}, false, !request.was_told, request.num_prompt_tokens, request.client};
      for (int64_t token : tokens->second) {
        request.tokens.push_back(token);
        one.tokens.push_back(token);
        one.is_end = request.num_output() >= request.max_tokens ||
                     int64_t(request.tokens.size()) >= limits_.max_model_len;
        if (one.is_end) break;
      }
      request.was_told = true;
      told.push_back(one);
      if (one.is_end) end(row.id);
    }
    return told;
  }

 private:
  Limits limits_;
  std::deque<int64_t> free_;
  std::map<Id, Request> requests_;
  std::vector<Id> added_, running_;
  std::deque<Id> waiting_;
  std::deque<Step> in_flight_;
  std::set<Id> preempted_, finished_;
  int64_t num_steps_ = 0, budget_ = 0;
  Pause pause_ = Pause::None;

  void schedule_running(Step& step) {
    for (size_t cursor = 0; cursor < running_.size() && budget_ > 0; ++cursor) {
      Request& request = requests_[running_[cursor]];
      // One position of the model is kept for the token that is sampled.
      int64_t num_new = std::min({int64_t(request.tokens.size()) - request.num_computed, budget_,
                                  limits_.max_model_len - request.num_computed - 1});
      if (num_new <= 0) continue;
      while (num_missing(request, num_new) > int64_t(free_.size())) {
#ifdef FAULT_FIRST_IS_PREEMPTED
        Id victim = running_.front();
        running_.erase(running_.begin());
#else
        Id victim = running_.back();  // the last that came
        running_.pop_back();
#endif
        preempt(victim);
        if (victim == request.id) return;  // nobody is left behind it
      }
      give(step, request, num_new, false, false);
    }
  }

  void schedule_waiting(Step& step) {
    while (budget_ > 0 && !waiting_.empty() && int64_t(running_.size()) < limits_.max_num_seqs) {
      Request& request = requests_[waiting_.front()];
      int64_t num_new = std::min(int64_t(request.tokens.size()), budget_);
      if (num_missing(request, num_new) > int64_t(free_.size())) return;  // nobody may overtake
      waiting_.pop_front();
      running_.push_back(request.id);
      give(step, request, num_new, !request.was_preempted, request.was_preempted);
    }
  }

  void give(Step& step, Request& request, int64_t num_new, bool is_new, bool is_resumed) {
    Row row{request.id, num_new, request.num_computed, request.num_output(), is_new, is_resumed, {}, {}, {}};
    for (int64_t left = num_missing(request, num_new); left > 0; --left) {
      row.new_blocks.push_back(free_.front());
      request.blocks.push_back(free_.front());
      free_.pop_front();
    }
    row.all_tokens = request.tokens;
    row.prompt.assign(request.tokens.begin(), request.tokens.begin() + request.num_prompt_tokens);
    budget_ -= num_new;
    step.rows.push_back(row);
  }

  int64_t num_missing(const Request& request, int64_t num_new) const {
    int64_t num_slots = std::min(request.num_computed + num_new, limits_.max_model_len);
    int64_t num_blocks = (num_slots + limits_.block_size - 1) / limits_.block_size;
    return std::max<int64_t>(num_blocks - int64_t(request.blocks.size()), 0);
  }

  void preempt(const Id& id) {
    Request& request = requests_[id];
    release(request);
    request.num_computed = 0;
    request.was_preempted = true;
    waiting_.push_front(id);
    preempted_.insert(id);
  }

  // The tail of a table becomes free first, and what became free last is taken first.
  void release(Request& request) {
#ifdef FAULT_FREED_IN_TABLE_ORDER
    free_.insert(free_.begin(), request.blocks.begin(), request.blocks.end());
#else
    free_.insert(free_.begin(), request.blocks.rbegin(), request.blocks.rend());
#endif
    request.blocks.clear();
  }

  void end(const Id id) {
    release(requests_[id]);
    requests_.erase(id);
    finished_.insert(id);
    running_.erase(std::remove(running_.begin(), running_.end(), id), running_.end());
    waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), id), waiting_.end());
    added_.erase(std::remove(added_.begin(), added_.end(), id), added_.end());
  }
};
