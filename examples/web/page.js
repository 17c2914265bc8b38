// A page whose button has the colour that a bandit chooses. ?server=ADDRESS&experiment=NAME

import { Bandana } from "../../client/bindings/web/dist/index.js";

const asked = new URLSearchParams(location.search);
const name = asked.get("experiment") ?? "button-colour";
const element = (id) => document.getElementById(id);

// ?demonstration: for no real users. Without it reports leave up to an hour later, so that their time does
// not tell whose they are.
const demonstration = asked.has("demonstration");
if (demonstration) {
  document.title = `DEMONSTRATION: ${document.title}`;
  console.warn("DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment");
}

const bandana = await Bandana.start({
  server: asked.get("server") ?? "http://127.0.0.1:7301",
  consent: true, // a real page asks; the box below opts out
  store: "shop",
  leastReleaseDelaySeconds: demonstration ? 0 : 600,
});
const experiment = bandana.experiment(name);

let choice;
function show() {
  choice = experiment.choose();
  element("arm").textContent = choice.label ?? `the default: ${choice.reason}`;
  element("buy").dataset.arm = choice.labelOr("default");
}

function tell() {
  const status = bandana.status();
  element("takes-part").checked = status.standing !== "opted-out";
  element("standing").textContent = status.trouble ?? status.standing;
  element("spent").textContent = `${status.lifetimeSpent ?? "unknown, in"} nats`;
  element("reports").textContent =
    `${status.openAssignments} open, ${status.waitingReports} waiting, ${status.uploadsAccepted} counted`;
}

element("buy").addEventListener("click", () => {
  choice.reward(1);
  element("thanks").textContent = "Thank you!";
});
element("takes-part").addEventListener("change", async (event) => {
  await (event.target.checked ? bandana.optIn() : bandana.optOut());
  show();
});

// The page shows its default at once, and the arm when a first answer is there.
show();
experiment.ready(10).then(show, tell);
setInterval(tell, 100);
