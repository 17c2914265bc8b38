// The client of Bandana for C and C++: an arm comes out, a reward goes in, and one random bit about it
// leaves. See docs/c.md.
//
// All functions may be called from any thread. Texts are UTF-8 and end with a zero byte. A pointer to
// a client, a choice or a step must come from this library, and must not be used after it was freed;
// NULL in place of a client acts like one that was closed. Nothing unwinds into C.

#ifndef BANDANA_H
#define BANDANA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Whether reports are made, and why not.
typedef enum {
  // They are made.
  BANDANA_STANDING_ON,
  // The user has opted out, or has not consented.
  BANDANA_STANDING_OPTED_OUT,
  // The device's clock does not agree with the server's day.
  BANDANA_STANDING_CLOCK_DISAGREES,
  // The process is a copy of the one that has the client.
  BANDANA_STANDING_FORKED,
  // The store can't be used: nothing is reported.
  BANDANA_STANDING_STORAGE_UNUSABLE,
  // The last write failed; it is made again.
  BANDANA_STANDING_STORAGE_FAILING,
  // The client was closed.
  BANDANA_STANDING_CLOSED,
} bandana_standing;

// What a step is.
typedef enum {
  // Post the body to the path at the aggregator's address, with the headers and without cookies.
  // Tell the end by `bandana_answered` or `bandana_unanswered`.
  BANDANA_STEP_KIND_CALL,
  // Keep the body, or nothing if it is empty, in place of what the slot had, as a whole or not at
  // all. Tell the end by `bandana_written`. Only with storage by the host.
  BANDANA_STEP_KIND_WRITE,
  // No step for some milliseconds.
  BANDANA_STEP_KIND_WAIT,
  // No step until there is work.
  BANDANA_STEP_KIND_DONE,
  // The client was closed.
  BANDANA_STEP_KIND_CLOSED,
} bandana_step_kind;

// A place of a host's store.
typedef enum {
  // Everything but the sums of rewards.
  BANDANA_SLOT_STATE,
  // The sums of rewards of open assignments.
  BANDANA_SLOT_REWARDS,
} bandana_slot;

// What the rewards of an app's experiments are.
typedef enum {
  // 0 or 1; without a reward, 0.
  BANDANA_REWARDS_BINARY,
  // From `reward_low` to `reward_high`; beyond that the nearer end counts. Without a reward, `reward_low`.
  BANDANA_REWARDS_BOUNDED,
  // 0, 1, ... up to `categories` - 1; without a reward, 0.
  BANDANA_REWARDS_CATEGORICAL,
} bandana_rewards;

// What to show: an arm, or the app's own default.
typedef struct bandana_choice bandana_choice;

// A client of an app.
typedef struct bandana_client bandana_client;

// A step of the host.
typedef struct bandana_step bandana_step;

// A public property of installations, such as the platform, and this one's value. It comes with
// each report of an experiment that divides by it, so that whoever sees the report sees the value.
typedef struct {
  // The property, as experiments name it.
  const char *name;
  // The value. With one that an experiment does not list, the installation does not take part.
  const char *value;
} bandana_segment;

// What an experiment may measure beside its rewards.
typedef struct {
  // The name, as experiments have it.
  const char *name;
  // What its values are: a number of `bandana_rewards`, binary or bounded.
  int values;
  // The least bounded value.
  double low;
  // The largest bounded value.
  double high;
} bandana_metric;

// An experiment whose arm the app gives, for developers and tests.
typedef struct {
  // The name of the experiment.
  const char *experiment;
  // The label of the arm.
  const char *arm;
} bandana_forced_arm;

// The settings of a client. Begin with `bandana_default_settings`.
typedef struct {
  // Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is
  // kept. Default: false.
  bool consent;
  // A directory of the app's own, for one client at a time, left out of backups. NULL, the default:
  // the host has the storage, or nothing is kept and the budget begins anew with each start.
  const char *directory;
  // Whether the host has the storage, and makes the writes. Default: false.
  bool host_storage;
  // The last bytes written to the slot of the state; NULL: nothing was ever written.
  const uint8_t *kept_state;
  // How many they are.
  size_t kept_state_size;
  // The last bytes written to the slot of the rewards; NULL: there are none.
  const uint8_t *kept_rewards;
  // How many they are.
  size_t kept_rewards_size;
  // What rewards are: a number of `bandana_rewards`. Default: binary.
  int rewards;
  // The least bounded reward.
  double reward_low;
  // The largest bounded reward.
  double reward_high;
  // The number of categories.
  uint32_t categories;
  // The largest epsilon of a report that the app accepts. Default: 1.
  double epsilon_max;
  // The public key of the operator, in hexadecimal, which must have signed every experiment; NULL,
  // the default: nobody need.
  const char *operator_key;
  // The public key of a countersigner, who must have signed too; NULL, the default: none.
  const char *countersigner_key;
  // The key of the public log that must say what a server tells; NULL, the default: it need not.
  const char *log_key;
  // The keys of its witnesses, separated by blanks.
  const char *log_witnesses;
  // How many of them must have seen what the log says; 0, the default: more than half.
  uint32_t log_quorum;
  // The most that all reports of a window may cost, in nats. Default: 5.
  double window_budget;
  // Days of the window, 1 to 31. Default: 7.
  uint32_t window_days;
  // The most that all reports of the installation may cost, in nats. Default: 20.
  double lifetime_budget;
  // The key of the app; NULL, the default: none.
  const char *app_key;
  // Whether sums of rewards of open assignments are kept in the store, so that the end of the
  // process does not lose them. Default: true. With false no raw reward rests on a disk, and an
  // assignment that was open at the end counts as one without those rewards.
  bool keep_pending_rewards;
  // The shortest release delay that the app accepts, in seconds; below 0, the default: the
  // library's.
  int64_t least_release_delay_seconds;
  // Whether an experiment is reported once in so many days, whichever arm, 0: once for ever; below
  // 0, the default: as the experiment says.
  int64_t report_once_days;
  // The properties that experiments may divide installations by; NULL, the default: none.
  const bandana_segment *segments;
  // How many they are.
  size_t segments_size;
  // What experiments may measure beside the rewards; NULL, the default: nothing.
  const bandana_metric *metrics;
  // How many they are.
  size_t metrics_size;
  // The experiment to which the installation tells, by randomized response, whether and why it refuses
  // others; NULL, the default: it tells nobody.
  const char *refusals_experiment;
  // The largest epsilon of a report about refusals. Default: 0.5.
  double refusals_epsilon_max;
  // Experiments whose arm is given, for developers and tests: the arm is shown, and nothing about the
  // experiment is fetched or reported. NULL, the default: none.
  const bandana_forced_arm *forced;
  // How many they are.
  size_t forced_size;
  // Called with `context` when there may be a step to take; NULL, the default: nobody is told. It may
  // only schedule, comes on any thread, and never because of a reward. It must not call the
  // client. Once `bandana_close` has returned no call is under way, and none comes.
  void (*on_work)(void *context);
  // Given to `on_work`.
  void *context;
} bandana_settings;

// How a client stands.
typedef struct {
  // Whether reports are made.
  bandana_standing standing;
  // Privacy loss of the running window, in nats; NAN: not known without the store.
  double window_spent;
  // Privacy loss so far, in nats; NAN: not known without the store.
  double lifetime_spent;
  // Assignments whose rewards still count.
  uint64_t open_assignments;
  // Reports that no server has counted yet.
  uint64_t waiting_reports;
  // Reports made since the start.
  uint64_t reports_made;
  // Uploads that a server has counted since the start.
  uint64_t uploads_accepted;
  // Uploads that a server has refused for good since the start.
  uint64_t uploads_refused;
  // Fetches without an answer since the start.
  uint64_t fetches_failed;
  // Answers that the client has refused since the start.
  uint64_t answers_refused;
  // Rewards that the experiment does not admit, that came too late, or whose assignment never
  // reports, since the start.
  uint64_t rewards_refused;
} bandana_status;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Settings with their defaults.
bandana_settings bandana_default_settings(void);

// Starts a client. NULL: a setting can't be used, and `*error`, unless `error` is NULL, is a text that
// says which and why, to be freed by `bandana_text_free`.
//
// # Safety
// `settings` leads to settings whose pointers are NULL or lead to what is said of them; `error` is
// NULL or leads to a pointer that may be written.
bandana_client *bandana_start(const bandana_settings *settings,
                              char **error);

// Ends everything, as `bandana_close`, and frees the client. What was freed acts as NULL from then on: to
// free a client, a choice or a step twice does nothing, and says so on the standard error.
//
// # Safety
// `client` is NULL, or comes from `bandana_start`.
void bandana_free(bandana_client *client);

// Ends everything: a directory has all that is pending and is free for another client, and no step
// follows. A host that has the storage makes the writes of `bandana_next_write` before. Reports that
// wait leave after the next start.
//
// # Safety
// `client` is NULL, or comes from `bandana_start` and was not freed.
void bandana_close(const bandana_client *client);

// Takes part in an experiment, which is fetched with one of the next steps. False: no experiment can
// have this name, or the client was closed; `*error` is as for `bandana_start`.
//
// # Safety
// `client` is NULL, or comes from `bandana_start` and was not freed; `name` is a text; `error` is NULL
// or leads to a pointer that may be written.
bool bandana_join(const bandana_client *client,
                  const char *name,
                  char **error);

// Reason why `bandana_choose` gives no arms, to be freed by `bandana_text_free`; NULL: it does.
//
// # Safety
// As for `bandana_choose`.
char *bandana_why_not_ready(const bandana_client *client, const char *name);

// Adds a reward to an assignment. Returns whether it was taken.
//
// # Safety
// `client` is NULL, or comes from `bandana_start` and was not freed.
bool bandana_reward(const bandana_client *client, uint64_t assignment, double reward);

// Adds a value of a metric to an assignment. Returns whether it was taken. An assignment
// reports its rewards or one metric, which was drawn with its arm; so tell of all of them. A
// metric that the experiment does not have is ignored.
//
// # Safety
// As for `bandana_reward`; `metric` is NULL or a text.
bool bandana_measure(const bandana_client *client,
                     uint64_t assignment,
                     const char *metric,
                     double value);

// How the client stands; once it is closed, as it stood then. NULL or a freed client is CLOSED, and
// nothing is known of it: no loss, and counts of 0.
//
// # Safety
// As for `bandana_reward`.
bandana_status bandana_status_of(const bandana_client *client);

// What is wrong with the store, in words, to be freed by `bandana_text_free`; NULL: nothing.
//
// # Safety
// As for `bandana_reward`.
char *bandana_trouble(const bandana_client *client);

// The next line for developers, to be freed by `bandana_text_free`; NULL: nothing is new. Lines tell of first
// policies, refusals, uploads and the store. Nothing in them depends on a reward or an arm. Take them after
// each step. `is_warning`, unless it is NULL, becomes whether something is in the way.
//
// # Safety
// As for `bandana_reward`; `is_warning` is NULL, or leads to a bool that may be written.
char *bandana_log_line(const bandana_client *client,
                       bool *is_warning);

// The last refusal of an experiment since the start, in words, with what to do about it, to be freed by
// `bandana_text_free`; NULL: none.
//
// # Safety
// As for `bandana_reward`.
char *bandana_last_refusal(const bandana_client *client);

// The last fetch, upload or answer since the start that failed, in words, with what to do about it, to be
// freed by `bandana_text_free`; NULL: none.
//
// # Safety
// As for `bandana_reward`.
char *bandana_last_error(const bandana_client *client);

// Opts the user out: nothing is fetched, kept or sent from now on, and what waited is erased. Returns
// whether that is stored; with storage by the host, it is with the next write.
//
// # Safety
// As for `bandana_reward`.
bool bandana_opt_out(const bandana_client *client);

// Opts the user in again, as `bandana_opt_out`.
//
// # Safety
// As for `bandana_reward`.
bool bandana_opt_in(const bandana_client *client);

// Ends waits for the server: the network has changed, or the app came to the foreground. Never call it
// because the user reacted.
//
// # Safety
// As for `bandana_reward`.
void bandana_wake(const bandana_client *client);

// The arm to show: that of the assignment whose attribution window lasts, also after a restart, or else
// a new one. Never waits for a network or a disk. To be freed by `bandana_choice_free`; NULL only when
// there is no memory.
//
// # Safety
// `client` is NULL, or comes from `bandana_start` and was not freed; `name` is NULL or a text.
bandana_choice *bandana_choose(const bandana_client *client,
                               const char *name);

// A new assignment, also while the attribution window of another lasts. In an experiment with
// `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported.
// As `bandana_choose` otherwise.
//
// # Safety
// As for `bandana_choose`.
bandana_choice *bandana_draw(const bandana_client *client, const char *name);

// The label of the arm, as long as the choice; NULL: show the app's own default.
//
// # Safety
// `choice` is NULL, or comes from this library and was not freed.
const char *bandana_choice_label(const bandana_choice *choice);

// Why it is the default, or why there will be no report, as long as the choice; NULL: there will be
// one.
//
// # Safety
// As for `bandana_choice_label`.
const char *bandana_choice_reason(const bandana_choice *choice);

// The index of the arm; below 0: show the app's own default.
//
// # Safety
// As for `bandana_choice_label`.
int64_t bandana_choice_arm(const bandana_choice *choice);

// The number of the assignment, for `bandana_reward`, also after a restart; 0: there is none.
//
// # Safety
// As for `bandana_choice_label`.
uint64_t bandana_choice_assignment(const bandana_choice *choice);

// Whether there will be a report.
//
// # Safety
// As for `bandana_choice_label`.
bool bandana_choice_is_reported(const bandana_choice *choice);

// Frees a choice. Its report is made all the same.
//
// # Safety
// `choice` is NULL, or comes from this library, and nobody has it now or later.
void bandana_choice_free(bandana_choice *choice);

// The next step. Ask when there may be work, when a wait ends, and after each step; further calls may
// be under way meanwhile. Blocks on the disk with a directory. To be freed by `bandana_step_free`;
// NULL only when there is no memory.
//
// # Safety
// As for `bandana_reward`.
bandana_step *bandana_next_step(const bandana_client *client);

// The next write, and no call: also after a reward, which is lost with the process until then. NULL:
// there is none; with a directory the writes were made. Blocks on the disk then.
//
// # Safety
// As for `bandana_reward`.
bandana_step *bandana_next_write(const bandana_client *client);

// What the step is.
//
// # Safety
// `step` is NULL, or comes from this library and was not freed.
bandana_step_kind bandana_step_kind_of(const bandana_step *step);

// The number of a call or write, by which its end is told; 0 for others.
//
// # Safety
// As for `bandana_step_kind_of`.
uint64_t bandana_step_number(const bandana_step *step);

// Milliseconds of a wait; 0 for others.
//
// # Safety
// As for `bandana_step_kind_of`.
uint64_t bandana_step_milliseconds(const bandana_step *step);

// The path of a call, as long as the step; empty for others.
//
// # Safety
// As for `bandana_step_kind_of`.
const char *bandana_step_path(const bandana_step *step);

// Whether a call is an upload, which should have a connection of its own.
//
// # Safety
// As for `bandana_step_kind_of`.
bool bandana_step_is_upload(const bandana_step *step);

// The name of a header of a call, as long as the step; NULL: it has no more.
//
// # Safety
// As for `bandana_step_kind_of`.
const char *bandana_step_header_name(const bandana_step *step, size_t index);

// The value of a header of a call, as long as the step; NULL: it has no more.
//
// # Safety
// As for `bandana_step_kind_of`.
const char *bandana_step_header_value(const bandana_step *step, size_t index);

// The bytes of a call or write, as long as the step, and how many they are.
//
// # Safety
// As for `bandana_step_kind_of`; `size` may be written.
const uint8_t *bandana_step_body(const bandana_step *step, size_t *size);

// The place of a write.
//
// # Safety
// As for `bandana_step_kind_of`.
bandana_slot bandana_step_slot(const bandana_step *step);

// Frees a step. It still awaits its end.
//
// # Safety
// `step` is NULL, or comes from this library, and nobody has it now or later.
void bandana_step_free(bandana_step *step);

// Tells the answer to a call: its status, the headers `content-type` and `retry-after`, NULL for none,
// and its body.
//
// # Safety
// `client` is NULL, or comes from `bandana_start` and was not freed; the texts are NULL or texts;
// `body` leads to `size` bytes, or is NULL.
void bandana_answered(const bandana_client *client,
                      uint64_t call,
                      uint16_t status,
                      const char *content_type,
                      const char *retry_after,
                      const uint8_t *body,
                      size_t size);

// Tells that a call had no answer.
//
// # Safety
// As for `bandana_reward`.
void bandana_unanswered(const bandana_client *client, uint64_t call);

// Tells the end of a write: whether it would survive a power cut.
//
// # Safety
// As for `bandana_reward`.
void bandana_written(const bandana_client *client, uint64_t number, bool is_durable);

// Frees a text that a function says is to be freed.
//
// # Safety
// `text` is NULL, or comes from such a function, and nobody has it now or later.
void bandana_text_free(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* BANDANA_H */
