// The client in Node, Bun and Deno: that of pages, with a directory, and a connection for each call.

import { request as requestPlain } from "node:http";
import { request as requestEncrypted } from "node:https";
import { debuglog } from "node:util";
import { gunzipSync } from "node:zlib";

import { Bandana as Page } from "./index.js";
import { BYTES_MAX, limited, origin, type Transport } from "./transport.js";

export * from "./index.js";
export { DirectoryStore } from "./directory.js";

/** A transport to an address, as for pages, but each call has a connection of its own. */
export function posts(url: string): Transport {
  const at = origin(url);
  const request = at.startsWith("https:") ? requestEncrypted : requestPlain;
  // No redirect is followed.
  return (path, headers, body, until) => {
    const [signal, done] = limited(until);
    const answered = new Promise<Awaited<ReturnType<Transport>>>((resolve, reject) => {
      signal.addEventListener("abort", () => reject(new Error("no answer in time")));
      const call = request(at + path, { method: "POST", agent: false, headers, signal });
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
    return answered.finally(done);
  };
}

/** NODE_DEBUG=bandana shows what a client logs, on the standard error. */
const log = debuglog("bandana");

/** The client of a program. */
export class Bandana extends Page {
  protected static override readonly posts = posts;
  protected static override readonly log = (line: string) => log("%s", line);

  protected static override async unpack(packed: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
    return new Uint8Array(gunzipSync(packed));
  }

  /** What was chosen right before the program ends is kept, whoever ends it. */
  protected override listen(end: AbortSignal): void {
    if (running.size === 0) {
      process.once("exit", keepAll);
    }
    const keep = () => this.keepNow();
    running.add(keep);
    end.addEventListener("abort", () => {
      running.delete(keep);
      if (running.size === 0) {
        process.removeListener("exit", keepAll);
      }
    });
  }
}

/** What each client that runs does when the program ends. */
const running = new Set<() => void>();

function keepAll(): void {
  for (const keep of running) {
    keep();
  }
}
