"use strict";
// The demo's page: replays both runs, shows the cluster as it is, and flips its switches. It asks its own server only.

const svgNamespace = "http://www.w3.org/2000/svg";
const columns = 25; // nodes in a row
const wide = 18, high = 9, above = 5; // of a column; of a pod; how many pods that do not fit are drawn
const slowness = 10;
const historySeconds = 180;

const byId = (id) => document.getElementById(id);

function element(parent, name, attributes, text) {
  const made = document.createElementNS(svgNamespace, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.append(made);
  return made;
}

// drawMap draws every node as a column of its pods, by their schedulers, from the line of what fits upwards.
function drawMap(svg, nodes, fit) {
  const rowHigh = (fit + above) * high + 14;
  const rows = Math.ceil(nodes.length / columns);
  svg.setAttribute("viewBox", `0 0 ${columns * wide} ${rows * rowHigh}`);
  svg.replaceChildren();
  nodes.forEach((pods, i) => {
    const left = (i % columns) * wide, bottom = (Math.floor(i / columns) + 1) * rowHigh - 4;
    const full = bottom - fit * high;
    element(svg, "rect", {class: "room", x: left + 2, y: full, width: wide - 4, height: fit * high});
    pods.slice(0, fit + above).forEach((scheduler, at) => {
      const over = at >= fit ? " over" : "";
      element(svg, "rect", {class: `s${scheduler}${over}`, x: left + 3, y: bottom - (at + 1) * high + 1, width: wide - 6, height: high - 2});
    });
    element(svg, "line", {class: pods.length > fit ? "full red" : "full", x1: left + 1, y1: full, x2: left + wide - 1, y2: full});
  });
}

function count(nodes, fit) {
  const bound = nodes.reduce((sum, pods) => sum + pods.length, 0);
  const over = nodes.filter((pods) => pods.length > fit).length;
  const most = nodes.reduce((worst, pods) => Math.max(worst, pods.length), 0);
  return {bound, over, most};
}

const several = (n, one) => `${n} ${n === 1 ? one : `${one}s`}`;

function say(nodes, size) {
  const {bound, over, most} = count(nodes, size[0] / size[1]);
  return `${several(bound, "pod")} bound, ${several(over, "node")} overcommitted, fullest node ${most * size[1]} of ${size[0]} CPUs`;
}

// The replay.

const replay = {recording: null, at: 0, end: 0, playing: false, last: 0};

function nodesAt(run, at) {
  const nodes = Array.from({length: replay.recording.nodes}, () => []);
  for (const bind of run.binds) if (bind.ms <= at) nodes[bind.node].push(bind.scheduler);
  return nodes;
}

function drawReplay() {
  const {recording, at} = replay;
  byId("scrubber").value = at;
  byId("time").textContent = `${(at / 1000).toFixed(3)} s`;
  const size = [recording.nodeCPUs, recording.podCPUs];
  recording.runs.forEach((run, i) => {
    const nodes = nodesAt(run, at);
    drawMap(byId(`run-${i}`), nodes, size[0] / size[1]);
    const seen = (run.conflicts ?? []).filter((conflict) => conflict.ms <= at).length;
    const conflicts = i > 0 ? "" : `; a server that only observes saw ${several(seen, "conflict")}`;
    byId(`said-${i}`).textContent = say(nodes, size) + conflicts;
  });
}

function play(playing) {
  replay.playing = playing;
  byId("play").textContent = playing ? "Pause" : "Play";
  if (!playing) return;
  if (replay.at >= replay.end) replay.at = 0;
  replay.last = performance.now();
  requestAnimationFrame(step);
}

function step(now) {
  if (!replay.playing) return;
  replay.at = Math.min(replay.end, replay.at + (now - replay.last) / slowness);
  replay.last = now;
  drawReplay();
  if (replay.at >= replay.end) play(false);
  else requestAnimationFrame(step);
}

async function loadRecording() {
  replay.recording = await (await fetch("recording.json")).json();
  replay.end = 1 + Math.max(...replay.recording.runs.flatMap((run) => run.binds.map((bind) => bind.ms)));
  byId("scrubber").max = Math.ceil(replay.end);
  byId("scrubber").disabled = byId("play").disabled = false;
  drawReplay();
  if (!replay.playing && replay.recording.runs.length === 2) play(true);
}

byId("play").addEventListener("click", () => play(!replay.playing));
byId("scrubber").addEventListener("input", (event) => {
  play(false);
  replay.at = Number(event.target.value);
  drawReplay();
});

// The cluster as it is.

function drawHistory(svg, history) {
  const width = 460, height = 180, left = 30, bottom = 20;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.replaceChildren();
  const most = Math.max(5, ...history.map((sample) => sample.overcommitted));
  const x = (i) => left + (i + historySeconds - history.length) * (width - left - 4) / historySeconds;
  const y = (over) => (height - bottom) - over * (height - bottom - 10) / most;
  history.forEach((sample, i) => {
    if (!sample.behind || history[i - 1]?.behind) return;
    const until = history.findIndex((later, at) => at > i && !later.behind);
    const right = x(until < 0 ? history.length : until);
    element(svg, "rect", {class: "behind", x: x(i), y: 10, width: right - x(i), height: height - bottom - 10});
  });
  element(svg, "line", {class: "axis", x1: left, y1: y(0), x2: width, y2: y(0)});
  element(svg, "text", {x: 4, y: y(0)}, "0");
  element(svg, "text", {x: 4, y: y(most) + 10}, String(most));
  element(svg, "text", {x: left, y: height - 4}, "3 minutes ago; shaded while the schedulers are behind GlobalReserve");
  element(svg, "polyline", {points: history.map((sample, i) => `${x(i)},${y(sample.overcommitted)}`).join(" ")});
}

function drawState(state) {
  byId("phase").textContent = `Now: ${state.phase}.`;
  const links = byId("links");
  if (links.childElementCount !== state.links.length) {
    links.replaceChildren(...state.links.map((link) => {
      const a = document.createElement("a");
      a.href = link.url;
      a.textContent = link.text;
      return a;
    }));
  }
  drawMap(byId("now"), state.nodes, state.size[0] / state.size[1]);
  byId("said-now").textContent = `${say(state.nodes, state.size)}, ${state.waiting === 1 ? "1 pod waits" : `${state.waiting} pods wait`}`;
  drawHistory(byId("history"), state.history);
  const churn = byId("churn"), behind = byId("behind");
  churn.disabled = behind.disabled = !state.switches;
  if (!flips) {
    churn.checked = state.wished.churn;
    behind.checked = state.wished.behind;
  }
  byId("flipping").textContent = state.is.behind === state.wished.behind ? "" : "the schedulers are being started anew …";
}

let flips = 0; // that are under way

async function flip() {
  flips++;
  try {
    await fetch("switch", {
      method: "POST", headers: {"Content-Type": "application/json"},
      body: JSON.stringify({churn: byId("churn").checked, behind: byId("behind").checked}),
    });
  } finally {
    flips--;
  }
}

byId("churn").addEventListener("change", flip);
byId("behind").addEventListener("change", flip);

async function look() {
  try {
    const state = await (await fetch("state.json")).json();
    drawState(state);
    if (state.runs !== (replay.recording ? replay.recording.runs.length : 0)) await loadRecording();
  } catch (problem) {
    byId("phase").textContent = "The demo has ended, or does not answer.";
  }
  setTimeout(look, 500);
}

look();
