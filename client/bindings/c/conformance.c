// The program of C for ../conformance/run.py.

#define _POSIX_C_SOURCE 200809L

#include "example/host.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORDS_MAX 10

static bandana_client *client;
static host *carrier;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

// Prints an error, which it frees.
static void print_error(char *error) {
  printf("error\t%s\n", error == NULL ? "" : error);
  bandana_text_free(error);
}

static void start(char **words) {
  bandana_settings settings = bandana_default_settings();
  settings.directory = words[1];
  settings.consent = words[2][0] == '1';
  settings.window_budget = settings.lifetime_budget = atof(words[3]);
  settings.operator_key = strcmp(words[4], "-") == 0 ? NULL : words[4];
  settings.least_release_delay_seconds = 0;
  bandana_segment segment = {words[5], strchr(words[5], '=')};
  if (segment.value != NULL) {
    *(char *)segment.value++ = 0;
    settings.segments = &segment;
    settings.segments_size = 1;
  }
  bandana_metric metric = {.name = words[6], .values = BANDANA_REWARDS_BINARY};
  if (strcmp(metric.name, "-") != 0) {
    settings.metrics = &metric;
    settings.metrics_size = 1;
  }
  if (sscanf(words[7], "%lf:%lf", &settings.reward_low, &settings.reward_high) == 2) {
    settings.rewards = BANDANA_REWARDS_BOUNDED;
  }
  if (strcmp(words[8], "-") != 0) {
    settings.log_key = words[8];
    char *witnesses = strchr(words[8], ' ');
    *witnesses++ = 0;
    settings.log_witnesses = witnesses;
  }
  host *made = host_new(words[0]);
  if (made == NULL) {
    puts("error\tno host");
    return;
  }
  host_prepare(made, &settings);
  char *error = NULL;
  bandana_client *started = bandana_start(&settings, &error);
  if (started == NULL) {
    print_error(error);
    host_free(made);
    return;
  }
  client = started;
  carrier = made;
  puts(host_run(carrier, client) ? "ok" : "error\tno thread");
}

static void ready(const char *name, double patience) {
  double end = now() + patience;
  const struct timespec glance = {0, 10 * 1000 * 1000};
  for (;;) {
    char *why = bandana_why_not_ready(client, name);
    if (why == NULL) {
      puts("ready");
      return;
    }
    if (now() >= end) {
      printf("not-ready\t%s\n", why);
      bandana_text_free(why);
      return;
    }
    bandana_text_free(why);
    nanosleep(&glance, NULL);
  }
}

static void show(bandana_choice *choice) {
  const char *label = bandana_choice_label(choice);
  const char *reason = bandana_choice_reason(choice);
  if (label == NULL) {
    printf("default\t%s\n", reason);
  } else {
    printf("arm\t%s\t%llu\t", label, (unsigned long long)bandana_choice_assignment(choice));
    if (bandana_choice_is_reported(choice)) {
      puts("reported");
    } else {
      printf("unreported\t%s\n", reason);
    }
  }
  bandana_choice_free(choice);
}

typedef struct {
  pthread_t thread;
  const char *name;
  int times;
  uint64_t *seen;
} drawer;

static void *draw(void *context) {
  drawer *drawer = context;
  for (int i = 0; i < drawer->times; i++) {
    bandana_choice *choice = bandana_draw(client, drawer->name);
    drawer->seen[i] = bandana_choice_assignment(choice);
    bandana_reward(client, drawer->seen[i], 1.0);
    bandana_choice_free(choice);
  }
  return NULL;
}

static int compare(const void *one, const void *other) {
  uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
  return (a > b) - (a < b);
}

static void threads(int count, const char *name, int times) {
  size_t all = (size_t)count * (size_t)times, different = 0;
  uint64_t *seen = calloc(all, sizeof *seen);
  drawer *drawers = calloc((size_t)count, sizeof *drawers);
  for (int i = 0; i < count; i++) {
    drawers[i].name = name;
    drawers[i].times = times;
    drawers[i].seen = seen + (size_t)i * (size_t)times;
    pthread_create(&drawers[i].thread, NULL, draw, &drawers[i]);
  }
  for (int i = 0; i < count; i++) {
    pthread_join(drawers[i].thread, NULL);
  }
  qsort(seen, all, sizeof *seen, compare);
  for (size_t i = 0; i < all; i++) {
    different += i == 0 || seen[i] != seen[i - 1];
  }
  printf("%zu\n", different);
  free(drawers);
  free(seen);
}

static void status(void) {
  static const char *const standings[] = {"on",     "opted-out",        "clock-disagrees",
                                          "forked", "storage-unusable", "storage-failing",
                                          "closed"};
  bandana_status status = bandana_status_of(client);
  char spent[32] = "unknown";
  if (!isnan(status.lifetime_spent)) {
    snprintf(spent, sizeof spent, "%.9g", status.lifetime_spent);
  }
  printf("%s\t%s\t%llu\t%llu\t%llu\t%llu\t%llu\n", standings[status.standing], spent,
         (unsigned long long)status.waiting_reports,
         (unsigned long long)status.open_assignments,
         (unsigned long long)status.uploads_accepted,
         (unsigned long long)status.fetches_failed, (unsigned long long)status.uploads_refused);
}

static void print_text(char *text) {
  if (text == NULL) {
    puts("none");
  } else {
    printf("told\t%s\n", text);
  }
  bandana_text_free(text);
}

static void carry_out(const char *command, char **words) {
  char *error = NULL;
  if (strcmp(command, "start") == 0) {
    start(words);
  } else if (strcmp(command, "join") == 0) {
    if (bandana_join(client, words[0], &error)) {
      puts("ok");
    } else {
      print_error(error);
    }
  } else if (strcmp(command, "ready") == 0) {
    ready(words[0], atof(words[1]));
  } else if (strcmp(command, "choose") == 0) {
    show(bandana_choose(client, words[0]));
  } else if (strcmp(command, "draw") == 0) {
    show(bandana_draw(client, words[0]));
  } else if (strcmp(command, "reward") == 0) {
    puts(bandana_reward(client, strtoull(words[0], NULL, 10), atof(words[1])) ? "yes" : "no");
  } else if (strcmp(command, "measure") == 0) {
    uint64_t assignment = strtoull(words[0], NULL, 10);
    puts(bandana_measure(client, assignment, words[1], atof(words[2])) ? "yes" : "no");
  } else if (strcmp(command, "threads") == 0) {
    threads(atoi(words[0]), words[1], atoi(words[2]));
  } else if (strcmp(command, "time") == 0) {
    int times = atoi(words[1]);
    double begin = now();
    for (int i = 0; i < times; i++) {
      bandana_choice_free(bandana_choose(client, words[0]));
    }
    printf("%f\n", (now() - begin) / times * 1e6);
  } else if (strcmp(command, "status") == 0) {
    status();
  } else if (strcmp(command, "refusal") == 0) {
    print_text(bandana_last_refusal(client));
  } else if (strcmp(command, "error") == 0) {
    print_text(bandana_last_error(client));
  } else if (strcmp(command, "opt-out") == 0) {
    puts(bandana_opt_out(client) ? "ok" : "failed");
  } else if (strcmp(command, "opt-in") == 0) {
    puts(bandana_opt_in(client) ? "ok" : "failed");
  } else if (strcmp(command, "wake") == 0) {
    bandana_wake(client);
    puts("ok");
  } else {
    bandana_close(client);
    puts("ok");
  }
}

int main(void) {
  char line[4096];
  while (fgets(line, sizeof line, stdin) != NULL) {
    line[strcspn(line, "\n")] = 0;
    char *words[WORDS_MAX] = {NULL};
    char *rest = line;
    // Words may be empty.
    for (int i = 0; i < WORDS_MAX && rest != NULL; i++) {
      words[i] = rest;
      rest = strchr(rest, '\t');
      if (rest != NULL) {
        *rest++ = 0;
      }
    }
    carry_out(words[0], words + 1);
    fflush(stdout);
  }
  bandana_close(client);
  host_free(carrier);
  bandana_free(client);
  bandana_free(client); // an error, which is told and harms nobody
  return 0;
}
