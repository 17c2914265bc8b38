// The client of Bandana for C++17: the functions of bandana.h with owners. Nothing is thrown but by the
// constructor and `join`.

#ifndef BANDANA_HPP
#define BANDANA_HPP

#include "bandana.h"

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace bandana {

// A setting that can't be used.
class setup_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

namespace detail {

struct free_text {
  void operator()(char *text) const { bandana_text_free(text); }
};
struct free_client {
  void operator()(bandana_client *client) const { bandana_free(client); }
};
struct free_choice {
  void operator()(bandana_choice *choice) const { bandana_choice_free(choice); }
};
struct free_step {
  void operator()(bandana_step *step) const { bandana_step_free(step); }
};

using text = std::unique_ptr<char, free_text>;

inline std::optional<std::string> optional(const char *text) {
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

} // namespace detail

// A step of the host: see `bandana_step_kind`.
using step = std::unique_ptr<bandana_step, detail::free_step>;

// What to show: an arm, or the app's own default.
class choice {
public:
  explicit choice(bandana_choice *taken) : choice_(taken) {}

  // The label of the arm, or `otherwise`.
  std::string label_or(const std::string &otherwise) const {
    return label().value_or(otherwise);
  }
  std::optional<std::string> label() const {
    return detail::optional(bandana_choice_label(choice_.get()));
  }
  // Why it is the default, or why there will be no report.
  std::optional<std::string> reason() const {
    return detail::optional(bandana_choice_reason(choice_.get()));
  }
  // For `client::reward`, also after a restart; 0: none.
  std::uint64_t assignment() const { return bandana_choice_assignment(choice_.get()); }
  bool is_reported() const { return bandana_choice_is_reported(choice_.get()); }

private:
  std::unique_ptr<bandana_choice, detail::free_choice> choice_;
};

// The client of an app. All functions may be called from any thread.
class client {
public:
  explicit client(const bandana_settings &settings) {
    char *error = nullptr;
    client_.reset(bandana_start(&settings, &error));
    if (client_ == nullptr) {
      fail(error);
    }
  }

  void join(const std::string &experiment) {
    char *error = nullptr;
    if (!bandana_join(client_.get(), experiment.c_str(), &error)) {
      fail(error);
    }
  }
  // Why `choose` gives no arms; nothing: it does.
  std::optional<std::string> why_not_ready(const std::string &experiment) const {
    detail::text why(bandana_why_not_ready(client_.get(), experiment.c_str()));
    return detail::optional(why.get());
  }
  bandana::choice choose(const std::string &experiment) const {
    return bandana::choice(bandana_choose(client_.get(), experiment.c_str()));
  }
  bandana::choice draw(const std::string &experiment) const {
    return bandana::choice(bandana_draw(client_.get(), experiment.c_str()));
  }
  bool reward(std::uint64_t assignment, double reward) const {
    return bandana_reward(client_.get(), assignment, reward);
  }
  bool measure(std::uint64_t assignment, const std::string &metric, double value) const {
    return bandana_measure(client_.get(), assignment, metric.c_str(), value);
  }
  bandana_status status() const { return bandana_status_of(client_.get()); }
  // What is wrong with the store, in words; nothing: nothing is.
  std::optional<std::string> trouble() const {
    return detail::optional(detail::text(bandana_trouble(client_.get())).get());
  }
  // The last refusal and the last failure since the start, in words, with what to do about each.
  std::optional<std::string> last_refusal() const {
    return detail::optional(detail::text(bandana_last_refusal(client_.get())).get());
  }
  std::optional<std::string> last_error() const {
    return detail::optional(detail::text(bandana_last_error(client_.get())).get());
  }
  // The next line for developers, and whether something is in the way; nothing: nothing is new.
  std::optional<std::pair<std::string, bool>> log_line() const {
    bool is_warning = false;
    detail::text line(bandana_log_line(client_.get(), &is_warning));
    if (line == nullptr) {
      return std::nullopt;
    }
    return std::make_pair(std::string(line.get()), is_warning);
  }
  bool opt_out() const { return bandana_opt_out(client_.get()); }
  bool opt_in() const { return bandana_opt_in(client_.get()); }
  void wake() const { bandana_wake(client_.get()); }
  bandana::step next_step() const { return bandana::step(bandana_next_step(client_.get())); }
  // The next write, and no call: also after a reward, which is lost with the process until then. Nothing: there
  // is none; with a directory the writes were made. Blocks on the disk then.
  bandana::step next_write() const { return bandana::step(bandana_next_write(client_.get())); }
  void close() const { bandana_close(client_.get()); }
  // For the functions of bandana.h.
  bandana_client *get() const { return client_.get(); }

private:
  [[noreturn]] static void fail(char *error) {
    detail::text text(error);
    throw setup_error(error == nullptr ? "no memory" : error);
  }
  std::unique_ptr<bandana_client, detail::free_client> client_;
};

} // namespace bandana

#endif // BANDANA_HPP
