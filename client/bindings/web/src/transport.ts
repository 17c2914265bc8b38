// Posts the calls of a client, by `fetch`.

/** The answer to a call, as HTTP has it. */
export interface Answer {
  status: number;
  contentType: string | null;
  retryAfter: string | null;
  body: Uint8Array;
}

/**
 * Posts the body to the path at the aggregator's address, with these headers and no cookies.
 * `null`, or a rejection, is no answer.
 */
export type Transport = (
  path: string,
  headers: Record<string, string>,
  body: Uint8Array<ArrayBuffer>,
  /** Aborts when the client is closed. */
  until?: AbortSignal,
) => Promise<Answer | null>;

/** Longer answers are no answers of an aggregator. */
export const BYTES_MAX = 1 << 20;

/** The longest time for a call, in milliseconds. */
const PATIENCE_MS = 30_000;

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * A transport to an address: `https`, or `http` on this machine only, since everybody on the way can
 * forge answers that are not encrypted.
 *
 * @throws TypeError when the address can't be used.
 */
export function posts(url: string): Transport {
  return byFetch(origin(url));
}

/** The origin of an address that calls may be posted to. */
export function origin(url: string): string {
  let address: URL;
  try {
    address = new URL(url);
  } catch {
    throw new TypeError(`"${url}" is no address; give one like https://bandana.example.org`);
  }
  if (!["http:", "https:"].includes(address.protocol)) {
    throw new TypeError(`"${url}" is no address; give one like https://bandana.example.org`);
  }
  if (address.pathname !== "/" || address.search || address.hash || address.username) {
    throw new TypeError(`"${url}" has more than a host and a port; give these alone`);
  }
  if (address.protocol === "http:" && !LOCAL.has(address.hostname)) {
    throw new TypeError(`"${url}" is not encrypted; give https, or a transport of your own`);
  }
  return address.origin;
}

// A page can't choose its connections: uploads may share one, which tells that they are of one device.
const byFetch =
  (origin: string): Transport =>
  async (path, headers, body, until) => {
    const [signal, done] = limited(until);
    try {
      const answer = await fetch(origin + path, {
        method: "POST",
        headers,
        body,
        // Nothing that names the installation, and nothing that another place was told.
        credentials: "omit",
        cache: "no-store",
        redirect: "error",
        referrerPolicy: "no-referrer",
        // A report that is under way when the page is left arrives all the same.
        keepalive: true,
        signal,
      });
      return {
        status: answer.status,
        contentType: answer.headers.get("content-type"),
        retryAfter: answer.headers.get("retry-after"),
        body: await read(answer),
      };
    } catch (error) {
      throw inWords(error, signal);
    } finally {
      done();
    }
  };

/** What a browser tells of a call that failed is the same for many reasons: names them. */
function inWords(error: unknown, signal: AbortSignal): unknown {
  if (signal.aborted) {
    return new Error("no answer in time");
  }
  if (!(error instanceof TypeError) || typeof location === "undefined") {
    return error;
  }
  if (typeof navigator !== "undefined" && navigator.onLine === false) {
    return new Error("the device is offline");
  }
  return new Error(
    `the browser tells no more than "${error.message}": the server can't be reached, or its setting ` +
      `cors_origins lacks ${location.origin} (CORS), or the page's Content-Security-Policy lacks the ` +
      "server in connect-src, or the server answers with a redirect. The browser's console says which",
  );
}

/**
 * A signal that aborts after the longest time for a call, or with `until`; and what ends the wait. Without
 * `AbortSignal.any` and `AbortSignal.timeout`, which browsers of 2023 do not have.
 */
export function limited(until?: AbortSignal): [AbortSignal, () => void] {
  const limit = new AbortController();
  const end = () => limit.abort();
  const timer = setTimeout(end, PATIENCE_MS);
  unref(timer);
  until?.addEventListener("abort", end);
  if (until?.aborted) {
    end();
  }
  const done = () => {
    clearTimeout(timer);
    until?.removeEventListener("abort", end);
  };
  return [limit.signal, done];
}

/** A timer does not keep a program of Node alive. */
export function unref(timer: unknown): void {
  if (typeof timer === "object" && timer !== null && "unref" in timer) {
    (timer as { unref(): void }).unref();
  }
}

async function read(answer: Response): Promise<Uint8Array> {
  const reader = answer.body?.getReader();
  const pieces: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
    if (done || value === undefined) {
      break;
    }
    size += value.length;
    if (size > BYTES_MAX) {
      await reader?.cancel();
      throw new TypeError("an answer that is too long");
    }
    pieces.push(value);
  }
  const body = new Uint8Array(size);
  let place = 0;
  for (const piece of pieces) {
    body.set(piece, place);
    place += piece.length;
  }
  return body;
}
