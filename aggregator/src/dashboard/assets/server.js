// What the server is asked.

const TOKEN = "bandana-token";

/** Waits after a failed attempt, in milliseconds: each is twice the one before. */
const WAIT_MIN = 1000;
const WAIT_MAX = 30_000;

/** What will be said again and again, until something else is asked. */
const FINAL = [400, 401, 403, 404, 501];

/** Statuses of what is said within an answer of many lines. */
const STATUS = { UNAUTHENTICATED: 401, PERMISSION_DENIED: 403, NOT_FOUND: 404, INVALID_ARGUMENT: 400 };

/** Why there was no answer. Status 0: the server was not reached. */
export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The token, kept as long as this tab is open. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN),
  set: (value) => sessionStorage.setItem(TOKEN, value),
  clear: () => sessionStorage.removeItem(TOKEN),
};

async function request(path, options) {
  const headers = {};
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  if (options.method === "POST") {
    headers["content-type"] = "application/json";
    // No page of another origin can have a browser send it.
    headers["x-bandana-dashboard"] = "1";
  }
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ServerError(0, "The aggregator can't be reached.");
  }
  if (response.ok) return response;
  const text = (await response.text()).trim();
  let message = text;
  try {
    message = JSON.parse(text).error.message;
  } catch {
    // Whatever is in between may answer in words of its own.
  }
  throw new ServerError(response.status, message || `The server answered ${response.status}.`);
}

/** Reads an object. */
export const get = async (path, signal) => (await request(path, { signal })).json();

/** Reads the experiments of all pages of a list, archived ones too if these are wanted. */
export async function everything(path, archived, signal) {
  const all = [];
  let next = "";
  do {
    const page = await get(`${path}?archived=${archived}${next && `&page_token=${next}`}`, signal);
    all.push(...page.experiments);
    next = page.next_page_token;
  } while (next);
  return all;
}

/** Changes something, and reads how it is now. */
export async function post(path, body, signal) {
  const options = { method: "POST", body: JSON.stringify(body ?? {}), signal };
  return (await request(path, options)).json();
}

/** Reads a file, and has the browser save it. */
export async function save(path, name, signal) {
  const address = URL.createObjectURL(await (await request(path, { signal })).blob());
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // The browser has begun to save it by then.
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

/** Reads an answer of many lines, each an object. */
export async function* lines(path, signal) {
  const response = await request(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await next(reader, signal);
      if (done) return;
      const whole = (rest + value).split("\n");
      rest = whole.pop();
      for (const line of whole) {
        const object = JSON.parse(line);
        if (object.error) {
          throw new ServerError(STATUS[object.error.code] ?? 503, object.error.message);
        }
        yield object;
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function next(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ServerError(0, "The connection to the aggregator was lost.");
  }
}

/** Hands every line to `seen`, asks again when they end, and tells `told` of trouble
    (a message) and of its end (null). */
export async function follow(path, signal, seen, told) {
  let wait = WAIT_MIN;
  while (!signal.aborted) {
    let heard = false;
    try {
      for await (const object of lines(path, signal)) {
        heard = true;
        wait = WAIT_MIN;
        told(null);
        seen(object);
      }
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ServerError) || FINAL.includes(error.status)) throw error;
      heard = false;
      told(error.message);
    }
    // An answer that ended in order is asked for again at once.
    if (!heard) {
      await pause(wait, signal);
      wait = Math.min(2 * wait, WAIT_MAX);
    }
  }
}

/** Waits so many milliseconds, or until `signal`. */
export function pause(milliseconds, signal) {
  return new Promise((resolve) => {
    const alarm = setTimeout(resolve, milliseconds);
    signal?.addEventListener("abort", () => { clearTimeout(alarm); resolve(); }, { once: true });
  });
}
