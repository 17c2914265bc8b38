"""The program of Python for `../conformance/run.py`."""

import logging
import sys
import threading
import time

import bandana


def throw(record):
    print(record.getMessage(), file=sys.stderr)
    raise RuntimeError("a bug of the app's")


def main():
    # Whatever an app's log raises, the client goes on.
    logging.getLogger("bandana").addFilter(throw)
    app = None
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        try:
            if command == "start":
                app = start(*words)
                answer = "ok"
            else:
                answer = carry_out(app, command, words)
        except (bandana.SetupError, ValueError) as error:
            answer = f"error\t{error}"
        print(answer.replace("\n", " "), flush=True)


def start(url, directory, consent, lifetime, signer, segment, metric, rewards, log):
    return bandana.Bandana(
        url,
        directory=directory,
        consent=consent == "1",
        budget=bandana.Budget(window=float(lifetime), days=7, lifetime=float(lifetime)),
        signers=[] if signer == "-" else [signer],
        least_release_delay=0,
        segments={} if segment == "-" else dict([segment.split("=")]),
        metrics={} if metric == "-" else {metric: bandana.Binary()},
        log=None if log == "-" else bandana.Log(log.split(" ")[0], log.split(" ")[1:]),
        rewards=(
            bandana.Binary() if rewards == "-" else bandana.Bounded(*map(float, rewards.split(":")))
        ),
    )


def shown(choice):
    if choice.label is None:
        return f"default\t{choice.reason}"
    stands = "reported" if choice.is_reported else f"unreported\t{choice.reason}"
    return f"arm\t{choice.label}\t{choice.assignment}\t{stands}"


def carry_out(app, command, words):
    if command == "join":
        app.experiment(words[0])
        return "ok"
    if command == "ready":
        try:
            app.experiment(words[0]).wait_until_ready(float(words[1]))
            return "ready"
        except bandana.NotReady as why:
            return f"not-ready\t{why}"
    if command in ("choose", "draw"):
        experiment = bandana.Experiment(app, words[0])
        return shown(getattr(experiment, command)())
    if command == "reward":
        return "yes" if app.reward(int(words[0]), float(words[1])) else "no"
    if command == "measure":
        return "yes" if app.measure(int(words[0]), words[1], float(words[2])) else "no"
    if command == "threads":
        return str(threads(app, int(words[0]), words[1], int(words[2])))
    if command == "time":
        experiment, times = app.experiment(words[0]), int(words[1])
        begin = time.perf_counter()
        for _ in range(times):
            experiment.choose()
        return str((time.perf_counter() - begin) / times * 1e6)
    if command == "status":
        status = app.status()
        standing = status.standing.name.lower().replace("_", "-")
        figures = (
            "unknown" if status.lifetime_spent is None else status.lifetime_spent,
            status.waiting_reports,
            status.open_assignments,
            status.uploads_accepted,
            status.fetches_failed,
            status.uploads_refused,
        )
        return "\t".join([standing, *map(str, figures)])
    if command in ("refusal", "error"):
        text = getattr(app.status(), "last_" + command)
        return "none" if text is None else f"told\t{text}"
    if command in ("opt-out", "opt-in"):
        return "ok" if getattr(app, command.replace("-", "_"))() else "failed"
    getattr(app, command)()
    return "ok"


def threads(app, count, name, times):
    seen = set()

    def draw():
        for _ in range(times):
            choice = app.experiment(name).draw()
            choice.reward(1.0)
            seen.add(choice.assignment)

    all_of_them = [threading.Thread(target=draw) for _ in range(count)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join()
    return len(seen)


if __name__ == "__main__":
    main()
