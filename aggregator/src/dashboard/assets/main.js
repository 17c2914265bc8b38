// From the address to a page.

import { create } from "./create.js";
import { dataSets } from "./data-sets.js";
import { problem } from "./elements.js";
import { experiment } from "./experiment.js";
import { experiments } from "./experiments.js";
import { ServerError, token } from "./server.js";
import { signIn } from "./sign-in.js";
import { createTrusted } from "./trusted-create.js";
import { trusted } from "./trusted.js";

const PAGES = [
  [/^(#\/?)?$/, "Experiments", experiments],
  [/^#\/new$/, "New experiment", create],
  [/^#\/new\/from\/([a-z0-9._-]{1,64})$/, "New experiment", create],
  [/^#\/data-sets$/, "Data sets", dataSets],
  [/^#\/new-trusted$/, "New trusted experiment", createTrusted],
  [/^#\/experiments\/([a-z0-9._-]{1,64})$/, null, experiment],
  [/^#\/trusted\/([a-z0-9._-]{1,64})$/, null, trusted],
];

const main = document.getElementById("main");
const signOut = document.getElementById("sign-out");
const announcement = document.getElementById("announcement");

/** Ends what the page that is shown has under way. */
let shown = new AbortController();

/** Has it read out to those who can't see it. */
function announce(text) {
  announcement.textContent = text;
}

async function show() {
  shown.abort();
  const here = new AbortController();
  shown = here;
  const hash = location.hash;
  signOut.hidden = !token.get();
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.getAttribute("href") === (hash || "#/");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const found = PAGES.map(([pattern, title, page]) => ({ match: pattern.exec(hash), title, page }))
    .find(({ match }) => match);
  if (!found) {
    main.replaceChildren(problem("There is no such page."));
    return;
  }
  const { match, title, page } = found;
  document.title = `${title ?? match[1]} – Bandana`;
  const context = { main, signal: here.signal, announce, ready: () => focusHeading(here) };
  try {
    await page(context, ...match.slice(1));
  } catch (error) {
    if (here.signal.aborted) return;
    here.abort();
    if (error instanceof ServerError && error.status === 401) {
      const hadToken = Boolean(token.get());
      token.clear();
      signOut.hidden = true;
      signIn(main, hadToken, show);
    } else if (error instanceof ServerError) {
      main.replaceChildren(problem(error.message));
    } else {
      main.replaceChildren(problem("The dashboard has a fault. The browser’s console says more."));
      throw error;
    }
  }
}

/** After a link was followed, readers of the screen begin at the new page. The first page
    begins where documents do. */
let isFirst = true;
function focusHeading(here) {
  if (shown !== here) return;
  if (!isFirst) main.querySelector("h1")?.focus();
  isFirst = false;
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
signOut.addEventListener("click", () => {
  token.clear();
  location.hash = "#/";
  show();
});
addEventListener("hashchange", show);
show();
