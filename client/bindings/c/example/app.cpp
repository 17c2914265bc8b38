// The same app in C++.

#include "bandana.hpp"
#include "host.h"

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

int main(int count, char **arguments) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  host *host = host_new(count > 1 ? arguments[1] : "http://127.0.0.1:7301");
  if (host == nullptr) {
    std::cerr << "there is no memory" << std::endl;
    return 1;
  }
  bandana_settings settings = bandana_default_settings();
  settings.consent = true; // the user was asked
  settings.directory = "app-data/bandana";
  // Without it the app takes part in no experiment whose reports leave at once: their time tells whose they are.
  if (std::getenv("BANDANA_DEMONSTRATION") != nullptr) {
    std::cerr << "DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment\n";
    settings.least_release_delay_seconds = 0;
  }
  host_prepare(host, &settings);
  try {
    bandana::client client(settings);
    client.join("button-colour");
    if (!host_run(host, client.get())) {
      std::cerr << "there is no thread" << std::endl;
      client.close();
      host_free(host);
      return 1;
    }
    const auto end = steady_clock::now() + std::chrono::seconds(5);
    while (client.why_not_ready("button-colour") && steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    const auto choice = client.choose("button-colour");
    std::cout << "show " << choice.label_or("blue") << std::endl;
    if (const auto reason = choice.reason()) {
      std::cerr << "no report: " << *reason << std::endl;
    }
    client.reward(choice.assignment(), 1.0); // when the user reacts
    while (client.status().open_assignments + client.status().waiting_reports > 0) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    std::cout << "reports counted: " << client.status().uploads_accepted << std::endl;
    client.close();
    host_free(host);
    return 0;
  } catch (const bandana::setup_error &error) {
    std::cerr << error.what() << std::endl;
    host_free(host);
    return 1;
  }
}
