"use strict";
// Takes in the parts of the page that have changed, as the program that serves it has drawn and escaped them.
const link = document.getElementById("link");
const events = new EventSource("events");
const say = (words, lost) => { if (link.textContent !== words) { link.textContent = words; link.classList.toggle("lost", lost); } };
const take = (name, html) => {
  const part = document.getElementById(name);
  if (!part) return;
  // What a reader has opened stays open.
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  part.innerHTML = html;
  part.querySelectorAll("details").forEach((one, i) => { one.open = Boolean(open[i]); });
};
events.addEventListener("parts", (event) => {
  for (const [name, html] of Object.entries(JSON.parse(event.data))) take(name, html);
  say("live", false);
});
events.onerror = () => say("not connected: the program that serves this page has ended, or does not answer; what is shown is old", true);
