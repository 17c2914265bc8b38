// The program of Kotlin for ../../conformance/run.py.

import java.io.File
import java.util.concurrent.ConcurrentHashMap
import java.util.logging.Filter
import java.util.logging.Logger
import kotlin.concurrent.thread
import org.bandana.Bandana
import org.bandana.Budget
import org.bandana.Choice
import org.bandana.HttpTransport
import org.bandana.PublicLog
import org.bandana.Settings
import org.bandana.core.RewardTerms
import org.bandana.core.SetupException

fun start(words: List<String>): Bandana {
    val (url, directory, consent, lifetime, signer) = words
    val (segment, metric, range, log) = words.drop(5)
    val nats = lifetime.toDouble()
    val settings = Settings(
        consent = consent == "1",
        directory = File(directory),
        budget = Budget(nats, 7, nats),
        signers = if (signer == "-") emptyList() else listOf(signer),
        log = if (log == "-") null else log.split(" ").let { PublicLog(it[0], it.drop(1)) },
        leastReleaseDelaySeconds = 0,
        segments = if (segment == "-") emptyMap() else mapOf(segment.split("=").let { (name, value) -> name to value }),
        metrics = if (metric == "-") emptyMap() else mapOf(metric to RewardTerms.Binary),
        rewards = if (range == "-") RewardTerms.Binary
        else range.split(":").map(String::toDouble).let { (low, high) -> RewardTerms.Bounded(low, high) },
    )
    return Bandana(HttpTransport(url), settings)
}

fun shown(choice: Choice): String {
    val label = choice.label ?: return "default\t${choice.reason}"
    val stands = if (choice.isReported) "reported" else "unreported\t${choice.reason}"
    return "arm\t$label\t${choice.assignment}\t$stands"
}

fun ready(app: Bandana, name: String, patience: Double): String {
    val end = System.nanoTime() + (patience * 1e9).toLong()
    val experiment = app.experimentOrDefault(name)
    while (true) {
        val why = experiment.whyNotReady ?: return "ready"
        if (System.nanoTime() >= end) return "not-ready\t$why"
        Thread.sleep(10)
    }
}

fun threads(app: Bandana, count: Int, name: String, times: Int): Int {
    val seen = ConcurrentHashMap.newKeySet<ULong>()
    val all = List(count) {
        thread {
            repeat(times) {
                val choice = app.experiment(name).draw()
                choice.reward(1.0)
                choice.assignment?.let(seen::add)
            }
        }
    }
    all.forEach(Thread::join)
    return seen.size
}

fun time(app: Bandana, name: String, times: Int): Double {
    val experiment = app.experiment(name)
    val begin = System.nanoTime()
    repeat(times) { experiment.choose() }
    return (System.nanoTime() - begin) / 1e3 / times
}

fun told(text: String?): String = if (text == null) "none" else "told\t$text"

fun carryOut(app: Bandana, command: String, words: List<String>): String = when (command) {
    "join" -> "ok".also { app.experiment(words[0]) }
    "ready" -> ready(app, words[0], words[1].toDouble())
    "choose" -> shown(app.experimentOrDefault(words[0]).choose())
    "draw" -> shown(app.experimentOrDefault(words[0]).draw())
    "reward" -> if (app.reward(words[0].toULong(), words[1].toDouble())) "yes" else "no"
    "measure" -> if (app.measure(words[0].toULong(), words[1], words[2].toDouble())) "yes" else "no"
    "threads" -> threads(app, words[0].toInt(), words[1], words[2].toInt()).toString()
    "time" -> time(app, words[0], words[1].toInt()).toString()
    "status" -> app.status().run {
        val standing = standing.name.lowercase().replace('_', '-')
        val counts = listOf(waitingReports, openAssignments, uploadsAccepted, fetchesFailed, uploadsRefused)
        (listOf(standing, lifetimeSpent ?: "unknown") + counts).joinToString("\t")
    }
    "refusal" -> told(app.status().lastRefusal)
    "error" -> told(app.status().lastError)
    "opt-out" -> if (app.optOut()) "ok" else "failed"
    "opt-in" -> if (app.optIn()) "ok" else "failed"
    "wake" -> "ok".also { app.wake() }
    else -> "ok".also { app.close() }
}

// Held here: the system forgets a logger that nobody holds.
val log: Logger = Logger.getLogger("bandana")

fun main() {
    // Whatever an app's log throws, the client goes on.
    log.filter = Filter { record ->
        System.err.println(record.message)
        error("a bug of the app's")
    }
    var app: Bandana? = null
    for (line in generateSequence(::readLine)) {
        val words = line.split('\t')
        val answer = try {
            if (words[0] == "start") {
                app = start(words.drop(1))
                "ok"
            } else {
                carryOut(app!!, words[0], words.drop(1))
            }
        } catch (error: SetupException) {
            "error\t${error.message}"
        } catch (error: IllegalArgumentException) {
            "error\t${error.message}"
        }
        println(answer)
        System.out.flush()
    }
    app?.close()
}
