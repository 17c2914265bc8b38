// Five minutes to the first choice: shows an arm, rewards it, and waits until the report has left.

import java.io.File
import org.bandana.Bandana
import org.bandana.HttpTransport
import org.bandana.Settings

fun main(arguments: Array<String>) {
    val url = arguments.firstOrNull() ?: "http://127.0.0.1:7301"
    // Without it the app takes part in no experiment whose reports leave at once: their time tells whose they are.
    val demonstration = System.getenv("BANDANA_DEMONSTRATION") != null
    if (demonstration) {
        System.err.println("DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment")
    }
    val settings = Settings(
        consent = true, // the user was asked
        directory = File("app-data/bandana"),
        leastReleaseDelaySeconds = if (demonstration) 0 else 600,
    )
    Bandana(HttpTransport(url), settings).use { app ->
        val experiment = app.experiment("button-colour")
        // An app shows its default meanwhile; this one has nothing else to do.
        for (glance in 1..500) if (experiment.isReady) break else Thread.sleep(10)
        val choice = experiment.choose() // at once, offline too
        println("show ${choice.labelOr("blue")}")
        choice.reason?.let { System.err.println("no report: $it") }
        choice.reward(1.0) // when the user reacts

        var status = app.status()
        while (status.openAssignments + status.waitingReports > 0UL) {
            Thread.sleep(10)
            status = app.status()
        }
        println("reports counted: ${status.uploadsAccepted}")
    }
}
