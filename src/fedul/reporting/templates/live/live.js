"use strict";
// Fetches the sections of the page and replaces those that have changed. The server renders and escapes them.

const QUICK = 1000, SLOW = 5000;  // milliseconds between two looks: while the run goes on, and otherwise
const connection = document.getElementById("connection");
const connected = connection.textContent;
const shown = {};
let tag = "", goingOn = true, ahead = 0;  // ahead: seconds by which the server's clock is ahead of this one

function replace(name, html) {
  const section = document.getElementById(name);
  if (shown[name] === html) return;
  const first = !(name in shown);
  shown[name] = html;
  if (first && name === "report" && section.querySelector("iframe")) return;  // loaded with the page
  const focused = section.contains(document.activeElement) ? document.activeElement.id : "";
  const sideways = [...section.querySelectorAll(".scroll")].map(each => each.scrollLeft);
  section.innerHTML = html;
  section.querySelectorAll(".scroll").forEach((each, i) => { each.scrollLeft = sideways[i] || 0; });
  if (focused && document.getElementById(focused)) document.getElementById(focused).focus({preventScroll: true});
}

function since(seconds) {
  if (seconds < 1.5) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  const hours = Math.floor(seconds / 3600);
  return hours < 48 ? `${hours} h ago` : `${Math.floor(hours / 24)} days ago`;
}

function tick() {
  for (const each of document.querySelectorAll("time[data-at]")) {
    each.title ||= each.textContent;
    const text = since(Date.now() / 1000 + ahead - Number(each.dataset.at));
    if (each.textContent !== text) each.textContent = text;
  }
}

function say(text, lost) {
  if (connection.textContent !== text) connection.textContent = text;
  connection.classList.toggle("lost", lost);
}

async function update() {
  try {
    const headers = tag ? {"If-None-Match": tag} : {};
    const response = await fetch("state.json", {headers, cache: "no-store"});
    const date = Date.parse(response.headers.get("Date"));
    if (date && Math.abs(date - Date.now()) > 2500) ahead = (date - Date.now()) / 1000;
    if (response.status === 200) {
      const state = await response.json();
      tag = response.headers.get("ETag") || "";
      goingOn = state.going_on;
      document.title = state.title;
      for (const [name, html] of Object.entries(state.sections)) replace(name, html);
      const announcement = document.getElementById("announcement");
      if (announcement.textContent !== state.announcement) announcement.textContent = state.announcement;
    } else if (response.status !== 304) {
      throw new Error(`status ${response.status}`);
    }
    say(connected, false);
  } catch (problem) {
    goingOn = false;
    say("'fedul watch' has ended or cannot be reached, so this page shows the last that it knows.", true);
  }
  tick();
  setTimeout(update, goingOn && !document.hidden ? QUICK : SLOW);
}

tick();
setInterval(tick, 1000);
update();
