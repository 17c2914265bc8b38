// The visitor's browser has the client. It draws the arm, and what leaves after a click is one private bit.

import { Bandana } from "/bandana/index.js";

const element = (id) => document.getElementById(id);
const settings = await (await fetch("/settings")).json();
if (settings.demonstration) {
  console.warn("DEMONSTRATION, for no real users: reports leave at once, and nobody has signed the experiment");
}

let bandana, choice;

/** Shows an arm. Before the visitor agrees there is no client. */
async function takePart() {
  bandana ??= await Bandana.start({
    server: settings.server,
    consent: true,
    leastReleaseDelaySeconds: settings.demonstration ? 0 : 600,
  });
  await bandana.optIn();
  const experiment = bandana.experiment("button-colour");
  await experiment.ready(10).catch((why) => console.info(why.message));
  choice = experiment.choose();
  element("arm").textContent = choice.labelOr("the default");
}

element("takes-part").addEventListener("change", async (event) => {
  localStorage.setItem("takes-part", event.target.checked);
  if (event.target.checked) return takePart();
  await bandana?.optOut();
  element("arm").textContent = "the default";
});
element("buy").addEventListener("click", () => choice?.reward(1));
setInterval(() => {
  if (bandana) element("reports").textContent = `${bandana.status().uploadsAccepted} counted`;
}, 100);

if (localStorage.getItem("takes-part") === "true") {
  element("takes-part").checked = true;
  await takePart();
}
