// Five minutes to the first choice: shows an arm, rewards it, and waits until the report has left.

#define _POSIX_C_SOURCE 200809L

#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **arguments) {
  const char *url = count > 1 ? arguments[1] : "http://127.0.0.1:7301";
  host *host = host_new(url);
  if (host == NULL) {
    fprintf(stderr, "there is no memory\n");
    return 1;
  }
  bandana_settings settings = bandana_default_settings();
  settings.consent = true; // the user was asked
  settings.directory = "app-data/bandana";
  // Without it the app takes part in no experiment whose reports leave at once: their time tells whose they are.
  if (getenv("BANDANA_DEMONSTRATION") != NULL) {
    fprintf(stderr, "DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment\n");
    settings.least_release_delay_seconds = 0;
  }
  host_prepare(host, &settings);

  char *error = NULL;
  bandana_client *client = bandana_start(&settings, &error);
  if (client == NULL || !bandana_join(client, "button-colour", &error) || !host_run(host, client)) {
    fprintf(stderr, "%s\n", error == NULL ? "there is no thread" : error);
    bandana_text_free(error);
    bandana_free(client);
    host_free(host);
    return 1;
  }

  // An app shows its default meanwhile; this one has nothing else to do.
  const struct timespec glance = {0, 10 * 1000 * 1000};
  for (int i = 0; i < 500; i++) {
    char *why = bandana_why_not_ready(client, "button-colour");
    if (why == NULL) {
      break;
    }
    bandana_text_free(why);
    nanosleep(&glance, NULL);
  }
  bandana_choice *choice = bandana_choose(client, "button-colour");
  const char *label = bandana_choice_label(choice);
  printf("show %s\n", label == NULL ? "blue" : label);
  const char *reason = bandana_choice_reason(choice);
  if (reason != NULL) {
    fprintf(stderr, "no report: %s\n", reason);
  }
  bandana_reward(client, bandana_choice_assignment(choice), 1.0); // when the user reacts
  bandana_choice_free(choice);

  bandana_status status = bandana_status_of(client);
  while (status.open_assignments + status.waiting_reports > 0) {
    nanosleep(&glance, NULL);
    status = bandana_status_of(client);
  }
  printf("reports counted: %llu\n", (unsigned long long)status.uploads_accepted);

  bandana_close(client);
  host_free(host);
  bandana_free(client);
  return 0;
}
