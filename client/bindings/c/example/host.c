#define _POSIX_C_SOURCE 200809L

#include "host.h"

#include <curl/curl.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Longer answers are no answers of an aggregator.
#define ANSWER_MAX ((size_t)1 << 20)

// Seconds that a call may take.
#define PATIENCE 30L

struct host {
  char *url;
  bandana_client *client;
  pthread_t thread;
  bool runs;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool has_work;
  bool ends;
};

typedef struct {
  unsigned char *bytes;
  size_t size;
} buffer;

host *host_new(const char *url) {
  host *host = calloc(1, sizeof *host);
  if (host == NULL) {
    return NULL;
  }
  host->url = strdup(url);
  if (host->url == NULL || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    free(host->url);
    free(host);
    return NULL;
  }
  pthread_mutex_init(&host->lock, NULL);
  // Waits go by time that nobody sets.
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&host->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  return host;
}

// It only schedules.
static void on_work(void *context) {
  host *host = context;
  pthread_mutex_lock(&host->lock);
  host->has_work = true;
  pthread_cond_signal(&host->changed);
  pthread_mutex_unlock(&host->lock);
}

void host_prepare(host *host, bandana_settings *settings) {
  settings->on_work = on_work;
  settings->context = host;
}

// Waits until there is work; with `milliseconds` below 0, for as long as it takes.
static void wait_for_work(host *host, int64_t milliseconds) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  // No clock goes on for longer than a year.
  const int64_t longest = INT64_C(365) * 24 * 3600 * 1000;
  int64_t wait = milliseconds < longest ? milliseconds : longest;
  end.tv_sec += wait / 1000;
  end.tv_nsec += wait % 1000 * 1000000;
  if (end.tv_nsec >= 1000000000) {
    end.tv_sec += 1;
    end.tv_nsec -= 1000000000;
  }
  pthread_mutex_lock(&host->lock);
  int waited = 0;
  while (!host->has_work && !host->ends && waited != ETIMEDOUT) {
    waited = milliseconds < 0 ? pthread_cond_wait(&host->changed, &host->lock)
                              : pthread_cond_timedwait(&host->changed, &host->lock, &end);
  }
  pthread_mutex_unlock(&host->lock);
}

static size_t receive(char *bytes, size_t one, size_t count, void *context) {
  buffer *answer = context;
  size_t size = one * count;
  if (size > ANSWER_MAX - answer->size) {
    return 0;
  }
  unsigned char *longer = realloc(answer->bytes, answer->size + size + 1);
  if (longer == NULL) {
    return 0;
  }
  memcpy(longer + answer->size, bytes, size);
  answer->bytes = longer;
  answer->size += size;
  return size;
}

// Notes when the server wants to be asked again.
static size_t receive_header(char *bytes, size_t one, size_t count, void *context) {
  static const char name[] = "retry-after:";
  size_t size = one * count;
  char *retry_after = context;
  if (size > sizeof name && curl_strnequal(bytes, name, sizeof name - 1)) {
    size_t length = size - (sizeof name - 1);
    length = length < 31 ? length : 31;
    memcpy(retry_after, bytes + sizeof name - 1, length);
    retry_after[length] = 0;
    // The end of the line belongs to HTTP, and the space at the beginning too.
    retry_after[strcspn(retry_after, "\r\n")] = 0;
  }
  return size;
}

// Gives up when the host ends.
static int is_over(void *context, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
  (void)a, (void)b, (void)c, (void)d;
  host *host = context;
  pthread_mutex_lock(&host->lock);
  bool ends = host->ends;
  pthread_mutex_unlock(&host->lock);
  return ends;
}

static void call(host *host, const bandana_step *step) {
  uint64_t number = bandana_step_number(step);
  size_t size = 0;
  const uint8_t *body = bandana_step_body(step, &size);
  char address[2048];
  snprintf(address, sizeof address, "%s%s", host->url, bandana_step_path(step));

  // A handle of its own for each call: no connection, no cookie and no TLS session is shared.
  CURL *curl = curl_easy_init();
  struct curl_slist *headers = NULL;
  for (size_t i = 0; bandana_step_header_name(step, i) != NULL; i++) {
    char line[1024];
    snprintf(line, sizeof line, "%s: %s", bandana_step_header_name(step, i),
             bandana_step_header_value(step, i));
    headers = curl_slist_append(headers, line);
  }
  buffer answer = {NULL, 0};
  char retry_after[32] = "";
  CURLcode end = CURLE_OUT_OF_MEMORY;
  if (curl != NULL && headers != NULL) {
    curl_easy_setopt(curl, CURLOPT_URL, address);
    // None of the environment.
    curl_easy_setopt(curl, CURLOPT_PROXY, "");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, (const char *)body);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)size);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer);
    curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, receive_header);
    curl_easy_setopt(curl, CURLOPT_HEADERDATA, retry_after);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, is_over);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, host);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT, PATIENCE);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    end = curl_easy_perform(curl);
  }
  if (end == CURLE_OK) {
    long status = 0;
    char *content_type = NULL;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &content_type);
    bandana_answered(host->client, number, (uint16_t)status, content_type,
                     retry_after[0] == 0 ? NULL : retry_after, answer.bytes, answer.size);
  } else {
    bandana_unanswered(host->client, number);
  }
  free(answer.bytes);
  curl_slist_free_all(headers);
  curl_easy_cleanup(curl);
}

// Tells what is new. An app writes it to its own log.
static void tell(host *host) {
  bool is_warning = false;
  for (char *line; (line = bandana_log_line(host->client, &is_warning)) != NULL;) {
    fprintf(stderr, "bandana: %s%s\n", is_warning ? "warning: " : "", line);
    bandana_text_free(line);
  }
}

static void *run(void *context) {
  host *host = context;
  for (;;) {
    pthread_mutex_lock(&host->lock);
    host->has_work = false;
    bool ends = host->ends;
    pthread_mutex_unlock(&host->lock);
    if (ends) {
      return NULL;
    }
    bandana_step *step = bandana_next_step(host->client);
    bandana_step_kind kind = bandana_step_kind_of(step);
    tell(host);
    int64_t wait = kind == BANDANA_STEP_KIND_WAIT ? (int64_t)bandana_step_milliseconds(step) : -1;
    if (kind == BANDANA_STEP_KIND_CALL) {
      call(host, step);
    }
    bandana_step_free(step);
    if (kind == BANDANA_STEP_KIND_WAIT || kind == BANDANA_STEP_KIND_DONE) {
      wait_for_work(host, wait);
    } else if (kind == BANDANA_STEP_KIND_CLOSED) {
      return NULL;
    }
  }
}

bool host_run(host *host, bandana_client *client) {
  host->client = client;
  host->runs = pthread_create(&host->thread, NULL, run, host) == 0;
  return host->runs;
}

void host_free(host *host) {
  if (host == NULL) {
    return;
  }
  pthread_mutex_lock(&host->lock);
  host->ends = true;
  pthread_cond_signal(&host->changed);
  pthread_mutex_unlock(&host->lock);
  if (host->runs) {
    pthread_join(host->thread, NULL);
  }
  pthread_cond_destroy(&host->changed);
  pthread_mutex_destroy(&host->lock);
  curl_global_cleanup();
  free(host->url);
  free(host);
}
