package org.bandana

import java.io.ByteArrayOutputStream
import java.io.IOException
import java.io.InputStream
import java.net.CookieHandler
import java.net.HttpURLConnection
import java.net.URI
import java.util.Timer
import java.util.TimerTask

/** The answer to a call, as HTTP has it. */
class Answer(
    val status: Int,
    val contentType: String?,
    val retryAfter: String?,
    val body: ByteArray,
)

/**
 * Posts calls to the aggregator, on the client's own thread: no cookies, no name of the installation,
 * and a connection of its own for each upload where it can.
 */
fun interface Transport {
    /** The answer; `null`, or an exception, is none. */
    fun post(path: String, headers: Map<String, String>, body: ByteArray): Answer?
}

/**
 * A transport by `HttpURLConnection`, to an `https` address; to an `http` one on this machine only,
 * unless [inTheClear]: everybody on the way can forge its answers. Each call has a connection of its
 * own. An app that has set a `CookieHandler` gives a transport of its own, since that one would name
 * the installation in each call.
 */
class HttpTransport(url: String, inTheClear: Boolean = false) : Transport {
    private val base: String
    private val limits = Timer("bandana-limits", true)

    init {
        val address = runCatching { URI(url) }.getOrNull()
        require(address?.scheme in setOf("http", "https") && address?.host != null) {
            "\"$url\" is no address; give one like https://bandana.example.org"
        }
        val rest = listOf(address!!.rawPath?.trim('/'), address.rawQuery, address.rawFragment, address.rawUserInfo)
        require(rest.all { it.isNullOrEmpty() }) {
            "\"$url\" has more than a host and a port; give these alone"
        }
        require(address.scheme == "https" || inTheClear || address.host in LOCAL) {
            "\"$url\" is not encrypted: give https, or inTheClear = true in a network of your own"
        }
        base = "${address.scheme}://${address.rawAuthority}"
    }

    override fun post(path: String, headers: Map<String, String>, body: ByteArray): Answer? {
        check(CookieHandler.getDefault() == null) { "the app's CookieHandler would name the installation in each call; give a transport of your own" }
        val connection = URI(base + path).toURL().openConnection() as HttpURLConnection
        // The limits of a connection are ones for each piece: whoever sends a byte now and then would hold
        // the client for ever.
        val limit = object : TimerTask() {
            override fun run() {
                // What it throws would end the timer, and with it every later call.
                runCatching { connection.disconnect() }
            }
        }
        limits.schedule(limit, PATIENCE_MS.toLong())
        try {
            connection.requestMethod = "POST"
            connection.instanceFollowRedirects = false
            connection.useCaches = false
            connection.connectTimeout = PATIENCE_MS
            connection.readTimeout = PATIENCE_MS
            connection.doOutput = true
            headers.forEach(connection::setRequestProperty)
            connection.setRequestProperty("connection", "close")
            // One for all installations: the system's tells its version.
            connection.setRequestProperty("user-agent", "bandana")
            connection.setFixedLengthStreamingMode(body.size)
            connection.outputStream.use { it.write(body) }
            val status = connection.responseCode
            val stream = if (status < 400) connection.inputStream else connection.errorStream
            val answered = stream?.use(::read) ?: ByteArray(0)
            return Answer(
                status,
                connection.getHeaderField("content-type"),
                connection.getHeaderField("retry-after"),
                answered,
            )
        } finally {
            limit.cancel()
            // The answer is there, whatever becomes of the connection.
            runCatching { connection.disconnect() }
        }
    }

    private fun read(stream: InputStream): ByteArray {
        val body = ByteArrayOutputStream()
        val piece = ByteArray(16 * 1024)
        while (true) {
            val count = stream.read(piece)
            if (count < 0) return body.toByteArray()
            body.write(piece, 0, count)
            if (body.size() > BYTES_MAX) throw IOException("an answer that is too long")
        }
    }

    private companion object {
        val LOCAL = setOf("localhost", "127.0.0.1", "[::1]", "::1")
        const val PATIENCE_MS = 30_000

        // Longer answers are no answers of an aggregator.
        const val BYTES_MAX = 1 shl 20
    }
}
