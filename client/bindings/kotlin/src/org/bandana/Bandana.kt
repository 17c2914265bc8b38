package org.bandana

import java.io.File
import java.io.IOException
import java.util.logging.Level
import java.util.logging.Logger
import org.bandana.core.Call
import org.bandana.core.Configuration
import org.bandana.core.Core
import org.bandana.core.ForcedArm
import org.bandana.core.LogTerms
import org.bandana.core.Metric
import org.bandana.core.RefusalTerms
import org.bandana.core.RewardTerms
import org.bandana.core.Segment
import org.bandana.core.SetupException
import org.bandana.core.Status
import org.bandana.core.Step
import org.bandana.core.Store

/** The most that reports may cost an installation, in nats: in any [days] days, and in all. */
data class Budget(val window: Double = 5.0, val days: Int = 7, val lifetime: Double = 20.0)

/**
 * A server's public log, which must say what the server tells.
 *
 * @property key the log's key, as `bandana log-key` printed it.
 * @property witnesses the keys of its witnesses, 1 to 8.
 * @property quorum how many of them must have seen what the log says; `null`: more than half.
 */
data class PublicLog(val key: String, val witnesses: List<String>, val quorum: Int? = null) {
    internal fun terms(): LogTerms {
        require(quorum == null || quorum > 0) { "log: a quorum of $quorum is none" }
        return LogTerms(plain(key), witnesses.map(::plain), quorum?.toUInt())
    }
}

/** Settings of a [Bandana]. */
data class Settings(
    /** Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is kept. */
    val consent: Boolean,
    /**
     * The app's own directory, for one client at a time, left out of backups (`noBackupFilesDir` on
     * Android); `null`: everything is in memory: the budget begins anew with each start, and what is open
     * or waits at the end is lost.
     */
    val directory: File?,
    /** The largest privacy loss of a report that the app accepts, whatever a server asks. */
    val epsilonMax: Double = 1.0,
    /** What rewards are. */
    val rewards: RewardTerms = RewardTerms.Binary,
    /** Public keys that must have signed each experiment: none, the operator's, or a countersigner's too. */
    val signers: List<String> = emptyList(),
    /** The server's public log, which must say what the server tells; `null`: it need not. */
    val log: PublicLog? = null,
    val budget: Budget = Budget(),
    /** The key of the app, the same for all installations. */
    val appKey: String? = null,
    /**
     * Whether the rewards of assignments whose windows last are kept in the directory, so that the end of
     * the process does not lose them. With `false` no raw reward rests on a disk, and an assignment that
     * was open at the end counts as one without those rewards.
     */
    val keepPendingRewards: Boolean = true,
    /** The shortest release delay that the app accepts, in seconds; `null`: the library's. */
    val leastReleaseDelaySeconds: Long? = null,
    /** Whether an experiment is reported once in so many days, 0: once for ever; `null`: as the experiment says. */
    val reportOnceDays: Int? = null,
    /**
     * The public properties that experiments may divide installations by, each with this one's value,
     * which comes with its reports.
     */
    val segments: Map<String, String> = emptyMap(),
    /** What experiments may measure beside the rewards: binary or bounded. */
    val metrics: Map<String, RewardTerms> = emptyMap(),
    /**
     * The experiment to which the installation tells, by randomized response, whether and why it refuses
     * others; `null`: it tells nobody.
     */
    val refusals: String? = null,
    /** The largest privacy loss of a report about refusals. */
    val refusalsEpsilonMax: Double = 0.5,
    /**
     * Experiments whose arm is given, by its label, for developers and tests: the arm is shown, and nothing
     * about the experiment is fetched or reported.
     */
    val forced: Map<String, String> = emptyMap(),
)

/** What to show: an arm, or the app's own default. */
class Choice internal constructor(private val client: Bandana, private val of: org.bandana.core.Choice) {
    /** The label of the arm; `null`: show the default. */
    val label: String? get() = of.label

    /** The index of the arm; `null`: show the default. */
    val arm: Int? get() = of.arm?.toInt()

    /** The number for [Bandana.reward], also after a restart; `null`: the default. */
    val assignment: ULong? get() = of.assignment

    /** Whether there will be a report, whatever the user does. */
    val isReported: Boolean get() = of.isReported

    /** Why it is the default, or why there will be no report. */
    val reason: String? get() = of.reason

    /** The label of the arm, or [default]. */
    fun labelOr(default: String): String = of.label ?: default

    /** Adds a reward, while the window lasts. Returns whether it was taken; of the default, it is not. */
    fun reward(reward: Double): Boolean = of.assignment?.let { client.reward(it, reward) } ?: false

    /**
     * Adds a value of a metric, as [reward]. An assignment reports its rewards or one metric, which was
     * drawn with its arm; so tell of all of them. A metric that the experiment does not have is ignored.
     */
    fun measure(metric: String, value: Double): Boolean =
        of.assignment?.let { client.measure(it, metric, value) } ?: false
}

/** A text without halves of characters, which no other language takes. */
private fun plain(text: String): String = String(text.toByteArray())

/** One experiment of an app. */
class Experiment internal constructor(private val client: Bandana, name: String) {
    /** The name, with what is no Unicode in it replaced. */
    val name: String = plain(name)

    /** Whether there is a policy, so that [choose] gives arms. */
    val isReady: Boolean get() = whyNotReady == null

    /** The labels of the arms in play; none before there is a policy. */
    val labels: List<String> get() = client.core.labels(name)

    /** Why [choose] gives no arms, in words; `null`: it does. */
    val whyNotReady: String? get() = client.core.whyNotReady(name)

    /**
     * The arm to show: that of the assignment whose attribution window lasts, also after a restart, or
     * else a new one. Never waits, never fails.
     */
    fun choose(): Choice = Choice(client, client.core.choose(name))

    /**
     * A new assignment, also while the attribution window of another lasts. In an experiment with
     * `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported.
     */
    fun draw(): Choice = Choice(client, client.core.draw(name))
}

/**
 * The client of an app, with a thread that talks to the aggregator by [transport]. All functions may be
 * called from any thread.
 *
 * @throws SetupException for a setting that can't be used, with what to give.
 */
class Bandana(private val transport: Transport, settings: Settings) : AutoCloseable {
    internal val core: Core

    init {
        fun days(days: Int, what: String): UInt {
            require(days >= 0) { "$what: $days is below 0" }
            return days.toUInt()
        }
        val delay = settings.leastReleaseDelaySeconds
        require(delay == null || delay >= 0) { "leastReleaseDelaySeconds: $delay is below 0" }
        val path = settings.directory?.path
        require(path == null || plain(path) == path) { "directory: \"$path\" is no path" }
        val configuration = Configuration(
            store = settings.directory?.let { Store.Directory(it.path) } ?: Store.Memory,
            rewards = settings.rewards,
            epsilonMax = settings.epsilonMax,
            signers = settings.signers.map(::plain),
            log = settings.log?.terms(),
            windowBudget = settings.budget.window,
            windowDays = days(settings.budget.days, "budget"),
            lifetimeBudget = settings.budget.lifetime,
            consent = settings.consent,
            appKey = settings.appKey?.let(::plain),
            keepPendingRewards = settings.keepPendingRewards,
            leastReleaseDelaySeconds = delay?.toULong(),
            reportOnceDays = settings.reportOnceDays?.let { days(it, "reportOnceDays") },
            segments = settings.segments.map { (name, value) -> Segment(plain(name), plain(value)) },
            metrics = settings.metrics.map { (name, values) -> Metric(plain(name), values) },
            refusals = settings.refusals?.let { RefusalTerms(plain(it), settings.refusalsEpsilonMax) },
            forced = settings.forced.map { (name, arm) -> ForcedArm(plain(name), plain(arm)) },
        )
        core = Core.start(configuration)
        Thread(::carryOut, "bandana").apply { isDaemon = true }.start()
    }

    /**
     * The experiment of this name, which is fetched if it is not yet known.
     *
     * @throws SetupException when no experiment can have this name.
     */
    fun experiment(name: String): Experiment {
        core.join(plain(name))
        return Experiment(this, name)
    }

    /** An experiment that was joined before: its choices are defaults if no experiment can have the name. */
    fun experimentOrDefault(name: String): Experiment = Experiment(this, name)

    /** Adds a reward to an assignment ([Choice.assignment]). Returns whether its window lasts. */
    fun reward(assignment: ULong, reward: Double): Boolean = core.reward(assignment, reward)

    /** Adds a value of a metric to an assignment, as [Choice.measure]. */
    fun measure(assignment: ULong, metric: String, value: Double): Boolean =
        core.measure(assignment, plain(metric), value)

    /** How the client stands. */
    fun status(): Status = core.status()

    /** Opts the user out: nothing is fetched, kept or sent. Returns whether that is stored. */
    fun optOut(): Boolean = core.optOut()

    /** Opts the user in again. Returns whether that is stored. */
    fun optIn(): Boolean = core.optIn()

    /** The network has changed, or the app came to the foreground; never because the user reacted. */
    fun wake() = core.wake()

    /** Ends everything: what is pending is written, rewards too, and the directory is free. It waits for no window. */
    override fun close() = core.end()

    private fun carryOut() {
        while (true) {
            val step = core.nextStep()
            tell()
            when (step) {
                is Step.Call -> call(step.v1)
                is Step.Wait -> core.waitForWork(step.milliseconds.coerceAtMost(DAY_MS))
                is Step.Done -> core.waitForWork(DAY_MS)
                // No host has the storage here.
                is Step.Write -> core.written(step.v1.number, false)
                is Step.Closed -> return
            }
        }
    }

    /** Logs what is new. Nothing here depends on what users are shown or how they react. */
    private fun tell() {
        generateSequence { core.logLine() }.forEach {
            log(if (it.isWarning) Level.WARNING else Level.INFO) { it.text }
        }
    }

    /** Logs a text. What a handler or a filter of the app's throws must not end the thread. */
    private fun log(level: Level, text: () -> String) {
        runCatching { LOG.log(level, text()) }
    }

    private fun call(call: Call) {
        val headers = call.headers.associate { it.name to it.value }
        // A transport of the app's may fail in any way; that is no answer.
        val answer = runCatching { transport.post(call.path, headers, call.body) }
            .onFailure {
                log(if (it is IOException) Level.FINE else Level.WARNING) { "no answer to ${call.path}: $it" }
            }
            .getOrNull()
        // What interrupted it was not meant for the client.
        Thread.interrupted()
        if (answer == null || answer.status !in 0..65535) {
            core.unanswered(call.id)
        } else {
            val (type, after) = listOf(answer.contentType, answer.retryAfter).map { it?.let(::plain) }
            core.answered(call.id, answer.status.toUShort(), type, after, answer.body)
        }
    }

    private companion object {
        val DAY_MS = 86_400_000UL
        val LOG: Logger = Logger.getLogger("bandana")
    }
}
