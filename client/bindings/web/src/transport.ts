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

// Longer answers are no answers of an aggregator.
const BYTES_MAX = 1 << 20;

const PATIENCE_MS = 30_000;

const LOCAL = new Set(["localhost", "127.0.0.1", "[::1]"]);

/**
 * A transport to an address: `https`, or `http` on this machine only, since everybody on the way can
 * forge answers that are not encrypted.
 *
 * @throws TypeError when the address can't be used.
 */
export function posts(url: string): Transport {
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
  const isPage = typeof window !== "undefined" || typeof importScripts === "function";
  return (isPage ? byFetch : byNode)(address.origin);
}

declare const importScripts: unknown;

// A page can't choose its connections: uploads may share one, which tells that they are of one device.
const byFetch =
  (origin: string): Transport =>
  async (path, headers, body, until) => {
    const answer = await fetch(origin + path, {
      method: "POST",
      headers,
      body,
      // Nothing that names the installation, and nothing that another place was told.
      credentials: "omit",
      cache: "no-store",
      redirect: "error",
      referrerPolicy: "no-referrer",
      signal: limited(until),
    });
    const bytes = await read(answer);
    return {
      status: answer.status,
      contentType: answer.headers.get("content-type"),
      retryAfter: answer.headers.get("retry-after"),
      body: bytes,
    };
  };

// Each call has a connection of its own. No redirect is followed.
const byNode =
  (origin: string): Transport =>
  async (path, headers, body, until) => {
    const { request } = origin.startsWith("https:")
      ? await import("node:https")
      : await import("node:http");
    return new Promise((resolve, reject) => {
      const signal = limited(until);
      signal.addEventListener("abort", () => reject(new Error("no answer in time")));
      const call = request(origin + path, { method: "POST", agent: false, headers, signal });
      call.on("error", reject);
      call.on("upgrade", (_answer, socket) => {
        socket.destroy();
        reject(new TypeError("an answer of another protocol"));
      });
      call.on("response", (answer) => {
        const pieces: Buffer[] = [];
        let size = 0;
        answer.on("error", reject);
        answer.on("data", (piece: Buffer) => {
          size += piece.length;
          pieces.push(piece);
          if (size > BYTES_MAX) {
            answer.destroy(new TypeError("an answer that is too long"));
          }
        });
        answer.on("end", () =>
          resolve({
            status: answer.statusCode ?? 0,
            contentType: answer.headers["content-type"] ?? null,
            retryAfter: answer.headers["retry-after"] ?? null,
            body: new Uint8Array(Buffer.concat(pieces)),
          }),
        );
      });
      call.end(body);
    });
  };

/** A signal that aborts after the longest time for a call, or with `until`. */
function limited(until?: AbortSignal): AbortSignal {
  const limit = AbortSignal.timeout(PATIENCE_MS);
  return until === undefined ? limit : AbortSignal.any([until, limit]);
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
