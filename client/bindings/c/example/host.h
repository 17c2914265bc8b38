// A thread that carries out the steps of a client with libcurl: what an app writes once, with whatever
// HTTP it has.

#ifndef HOST_H
#define HOST_H

#include "bandana.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct host host;

// A host that talks to the aggregator at `url`. NULL: there is no memory or no thread.
host *host_new(const char *url);

// Lets the client of these settings be carried out by the host; then start the client with them, and
// give it to `host_run`.
void host_prepare(host *host, bandana_settings *settings);

// Starts the thread. False: there is none to be had.
bool host_run(host *host, bandana_client *client);

// Ends the thread, and frees the host. The client must be closed, and is freed afterwards. A call under
// way is given up.
void host_free(host *host);

#ifdef __cplusplus
}
#endif

#endif // HOST_H
