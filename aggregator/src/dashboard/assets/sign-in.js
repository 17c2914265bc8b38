// Asks for a token.

import { element, problem } from "./elements.js";
import { get, token } from "./server.js";

/** Shows the form; `signedIn` is called once the server has taken a token. */
export function signIn(main, wasRefused, signedIn) {
  const input = element("input", {
    id: "token", name: "token", type: "password", required: true, autocomplete: "off",
    spellcheck: "false", "aria-describedby": "token-note",
  });
  const trouble = element("div");
  if (wasRefused) trouble.append(problem("This token is not valid, or was revoked."));
  const submit = async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    const typed = input.value.trim();
    // Anything else can't be in a header.
    if (!/^[\x21-\x7e]+$/.test(typed)) {
      trouble.append(problem("A token is bndn_ with letters, digits, - and _ after it."));
      return;
    }
    token.set(typed);
    try {
      await get("/api/experiments");
    } catch (error) {
      token.clear();
      const refused = error.status === 401;
      trouble.append(problem(refused ? "The server does not know this token." : error.message));
      return;
    }
    signedIn();
  };
  main.replaceChildren(
    element("h1", { tabindex: "-1" }, "Sign in"),
    element("section", {},
      element("form", { onsubmit: submit, id: "sign-in" },
        trouble,
        element("div", { class: "field" },
          element("label", { for: "token" }, "Operator's token"), input,
          element("p", { class: "note", id: "token-note" },
            "Made with ", element("code", {}, "bandana token new"),
            ". This tab keeps it until it is closed.")),
        element("button", { type: "submit", class: "main" }, "Sign in"))));
  input.focus();
}
