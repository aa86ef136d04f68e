// Renders the snapshots of the lab.
//
// The page depends on the newest snapshot alone; the previous one is used only for rates and the event log. Elements are reused
// from one snapshot to the next, so that focus, open details and a screen reader's position survive. Text is inserted as text,
// never as markup.
"use strict";

// The lab sends a heartbeat every two seconds; after three missed ones the page is marked as outdated.
const SILENCE_MAX_MILLIS = 6000;
// How long an arrow stays animated after its last request.
const FLOW_MILLIS = 2500;
const LOG_LINES_MAX = 200;
const BOX = { width: 132, height: 74, gap: 76 };

const $ = (id) => document.getElementById(id);
const number = new Intl.NumberFormat("en");

const PHASES = {
  ready: ["ready", "good"],
  starting: ["starting", "part"],
  notReady: ["not ready", "part"],
  paused: ["paused", "part"],
  stopping: ["stopping", "part"],
  stopped: ["stopped", "off"],
  failed: ["failed", "bad"],
};
const phase = (server) => PHASES[server.phase] ?? [server.phase, "off"];

let last = null;
let heardAt = performance.now();
// from>to → request count and rate between two servers.
const flows = new Map();

// ---- elements ----------------------------------------------------------------------------------------------------------------

function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function setClass(element, name) {
  if (element.getAttribute("class") !== name) element.setAttribute("class", name);
}

function make(name, text) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  return element;
}

function draw(name, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Updates the children of `parent` to match `items` in order, reusing existing elements by key.
function keep(parent, items, keyOf, create, update) {
  const before = new Map();
  for (const child of [...parent.children]) before.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = before.get(key);
    if (child) {
      before.delete(key);
    } else {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === at) at = at.nextElementSibling;
    else parent.insertBefore(child, at);
    update(child, item);
  }
  for (const gone of before.values()) gone.remove();
}

// Creates a table row of `cells` cells, the first one a header cell.
function row(cells) {
  const line = make("tr");
  const head = make("th");
  head.scope = "row";
  line.append(head);
  for (let at = 1; at < cells; at += 1) line.append(make("td"));
  return line;
}

function mark(cell, text, kind) {
  let inner = cell.firstElementChild;
  if (!inner) {
    inner = make("span");
    cell.replaceChildren(inner);
  }
  put(inner, text);
  setClass(inner, `mark ${kind}`);
}

function columns(table, titles) {
  keep(table.tHead.rows[0], titles, (title) => title, () => {
    const cell = make("th");
    cell.scope = "col";
    return cell;
  }, put);
}

// ---- words -------------------------------------------------------------------------------------------------------------------

function duration(seconds) {
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)} min`;
  return `${Math.floor(seconds / 3600)} h`;
}

function count(howMany, one, many) {
  return `${number.format(howMany)} ${howMany === 1 ? one : many}`;
}

function some(names, most) {
  if (names.length <= most) return names.join(", ");
  return `${names.slice(0, most).join(", ")} and ${number.format(names.length - most)} more`;
}

// The text up to the first semicolon or line break, at most 90 characters.
function brief(text) {
  const clause = text.split(/[;\n]/)[0];
  return clause.length <= 90 ? clause : `${clause.slice(0, 90)}…`;
}

const isReady = (server) => server.phase === "ready";
const column = (server) => `${server.name} (${server.release})`;

// ---- sections ----------------------------------------------------------------------------------------------------------------

function showFacts(lab, servers) {
  const ready = servers.filter(isReady).length;
  put($("summary"), servers.length === 0 ? "No servers." : `${ready} of ${count(servers.length, "server", "servers")} ready`);
  document.title = `${ready}/${servers.length} ready – unskew lab`;
  const facts = [["Address", lab.address], ["kubeconfig", lab.kubeconfig], ["Store", lab.store], ["Folder", lab.folder]];
  const known = facts.filter(([, value]) => value !== "");
  keep($("facts"), known.flatMap(([name, value]) => [["dt", name, name], ["dd", value, name]]), ([tag, , name]) => tag + name,
    ([tag]) => make(tag), (element, [tag, text]) => {
      put(element, text);
      if (tag === "dd") setClass(element, "code");
    });
}

function showServers(servers) {
  keep($("servers").tBodies[0], servers, (server) => server.name, () => row(8), (line, server) => {
    const [head, release, process, since, member, address, resources, only] = line.cells;
    put(head, server.name);
    put(release, server.release);
    mark(process, phase(server)[0], phase(server)[1]);
    put(since, duration(server.phaseSeconds));
    put(member, server.memberState === "" ? "–" : `${server.memberState} for ${duration(server.memberSeconds)}`);
    put(address, server.address);
    setClass(address, "code");
    put(resources, server.resources === 0 ? "–" : number.format(server.resources));
    setClass(resources, "number");
    showOnly(only, server);
    line.dataset.phase = server.phase;
  });
}

// Shows the server's problem with its log lines, or else the resources that only it serves.
function showOnly(cell, server) {
  const [title, rest] = server.trouble !== "" ? [brief(server.trouble), server.trouble] : [some(server.only, 2), server.only.join("\n")];
  if (title === rest) {
    put(cell, title || "–");
    return;
  }
  let details = cell.querySelector("details");
  if (!details) {
    details = make("details");
    details.append(make("summary"), make("pre"));
    cell.replaceChildren(details);
  }
  put(details.firstElementChild, title);
  put(details.lastElementChild, rest);
}

const center = (at) => BOX.gap / 2 + at * (BOX.width + BOX.gap) + BOX.width / 2;

function showPicture(servers, forwards) {
  const reach = Math.max(0, ...forwards.map((forward) => distance(servers, forward)));
  const room = forwards.length === 0 ? 8 : 26 + reach * 26;
  const width = servers.length * (BOX.width + BOX.gap);
  $("picture").setAttribute("viewBox", `0 0 ${Math.max(width, 1)} ${BOX.height + 2 * room}`);
  $("picture").setAttribute("width", String(width));
  keep($("boxes"), servers, (server) => server.name, () => {
    const box = draw("g");
    box.append(draw("rect", { width: BOX.width, height: BOX.height, rx: 8 }));
    box.append(draw("text", { x: BOX.width / 2, y: 24, class: "name" }));
    box.append(draw("text", { x: BOX.width / 2, y: 43 }), draw("text", { x: BOX.width / 2, y: 62 }));
    return box;
  }, (box, server) => {
    const at = servers.indexOf(server);
    setClass(box, `box ${phase(server)[1]}`);
    box.setAttribute("transform", `translate(${center(at) - BOX.width / 2} ${room})`);
    const [name, release, state] = box.querySelectorAll("text");
    put(name, server.name);
    put(release, `Kubernetes ${server.release}`);
    put(state, phase(server)[0]);
  });
  showArrows(servers, forwards, room);
  const states = servers.map((server) => `${server.name}, release ${server.release}, ${phase(server)[0]}`);
  const between = forwards.map((forward) => `${forward.from} to ${forward.to}`);
  put($("picture-title"), `${states.join("; ")}. ${between.length === 0 ? "No requests are forwarded." : `Requests were forwarded from ${between.join(", ")}.`}`);
}

function distance(servers, forward) {
  const place = (name) => servers.findIndex((server) => server.name === name);
  return Math.abs(place(forward.to) - place(forward.from));
}

// Arrows to the right go above the boxes, arrows to the left below them.
function showArrows(servers, forwards, room) {
  const place = (name) => servers.findIndex((server) => server.name === name);
  const drawn = forwards.filter((forward) => place(forward.from) >= 0 && place(forward.to) >= 0);
  keep($("arrows"), drawn, (forward) => `${forward.from}>${forward.to}`, () => {
    const arrow = draw("g");
    arrow.append(draw("path"), draw("text"));
    return arrow;
  }, (arrow, forward) => {
    const [from, to] = [place(forward.from), place(forward.to)];
    const right = to > from;
    const edge = right ? room - 3 : room + BOX.height + 3;
    const height = (right ? -1 : 1) * (10 + distance(servers, forward) * 26);
    // Short arrows begin and end nearer to each other than long ones, so that they do not cross.
    const aside = (right ? 1 : -1) * Math.max(8, 44 - 10 * distance(servers, forward));
    const [x1, x2] = [center(from) + aside, center(to) - aside];
    const [path, label] = arrow.children;
    path.setAttribute("d", `M${x1} ${edge} C${x1} ${edge + height * 1.2} ${x2} ${edge + height * 1.2} ${x2} ${edge}`);
    label.setAttribute("x", String((x1 + x2) / 2));
    label.setAttribute("y", String(edge + height * 0.9 + (right ? -6 : 16)));
    const flow = flows.get(`${forward.from}>${forward.to}`);
    put(label, flow?.rate > 0 ? `${number.format(forward.requests)} (${number.format(flow.rate)}/s)` : number.format(forward.requests));
    setClass(arrow, flow?.rate > 0 ? "arrow flows" : "arrow");
  });
}

// Updates the request rate of each pair from this snapshot and the previous one.
function measure(forwards, now) {
  for (const forward of forwards) {
    const key = `${forward.from}>${forward.to}`;
    const known = flows.get(key);
    if (!known) {
      flows.set(key, { requests: forward.requests, at: now, rate: 0, movedAt: -Infinity });
      continue;
    }
    // The counter of a restarted server starts at 0.
    const more = forward.requests >= known.requests ? forward.requests - known.requests : forward.requests;
    if (more > 0) {
      known.rate = Math.max(1, Math.round((more * 1000) / Math.max(now - known.at, 250)));
      known.movedAt = now;
    } else if (now - known.movedAt > FLOW_MILLIS) {
      known.rate = 0;
    }
    known.requests = forward.requests;
    known.at = now;
  }
}

function showForwards(forwards) {
  $("forwards").hidden = forwards.length === 0;
  $("no-forwards").hidden = forwards.length > 0;
  keep($("forwards").tBodies[0], forwards, (forward) => `${forward.from}>${forward.to}`, () => row(4), (line, forward) => {
    const [from, to, requests, rate] = line.cells;
    put(from, forward.from);
    put(to, forward.to);
    put(requests, number.format(forward.requests));
    put(rate, number.format(flows.get(`${forward.from}>${forward.to}`)?.rate ?? 0));
    setClass(requests, "number");
    setClass(rate, "number");
  });
}

// Finds the resources of a group-version that not every server serves, and counts those that no ready server serves.
function judge(group, servers) {
  const sets = group.served.map((served) => new Set(served));
  const differing = [];
  let lost = 0;
  group.resources.forEach((name, at) => {
    const by = servers.filter((_, position) => sets[position]?.has(at));
    if (by.length < servers.length) differing.push({ name, by });
    if (!by.some(isReady)) lost += 1;
  });
  return { group, differing, lost };
}

function showMap(groups, servers) {
  const text = $("map-text").value.trim().toLowerCase();
  const onlyDiffering = $("map-differing").checked;
  const matches = ({ group, differing }) =>
    (!onlyDiffering || differing.length > 0) &&
    (text === "" || group.name.includes(text) || group.resources.some((name) => name.includes(text)));
  const judged = groups.map((group) => judge(group, servers));
  const shown = judged.filter(matches);
  put($("map-count"), `${shown.length} of ${count(groups.length, "API version", "API versions")}`);
  columns($("map"), ["API version", ...servers.map(column), "Through any server"]);
  keep($("map").tBodies[0], shown, ({ group }) => `${group.name} ${servers.length}`, () => row(servers.length + 2), (line, verdict) => {
    const { group, lost } = verdict;
    showGroup(line.cells[0], verdict);
    servers.forEach((server, at) => showServed(line.cells[at + 1], group.served[at]?.length ?? 0, group.resources.length, server));
    const reached = line.cells[servers.length + 1];
    if (lost === 0) mark(reached, "all", "good");
    else mark(reached, lost === group.resources.length ? "503" : `503 for ${lost}`, "bad");
  });
}

// Shows the name of a group-version, with expandable details where servers differ.
function showGroup(cell, { group, differing }) {
  if (differing.length === 0) {
    put(cell, group.name);
    return;
  }
  let details = cell.querySelector("details");
  if (!details) {
    details = make("details");
    details.append(make("summary", group.name), make("ul"));
    cell.replaceChildren(details);
  }
  keep(details.lastElementChild, differing, ({ name }) => name, () => make("li"), (item, { name, by }) => {
    put(item, `${name}: ${by.map((server) => server.name).join(", ") || "no server"}`);
  });
}

function showServed(cell, served, all, server) {
  const away = !isReady(server) && served > 0;
  if (served === 0) mark(cell, "none", "off");
  else mark(cell, served === all ? `all ${all}` : `${served} of ${all}`, away ? "off away" : served === all ? "good" : "part");
  let spoken = cell.querySelector(".spoken");
  if (away && !spoken) {
    spoken = make("span", "not running now");
    spoken.className = "spoken";
    cell.append(spoken);
  } else if (!away && spoken) {
    spoken.remove();
  }
}

const agrees = (version) => version.agreed !== "";

// Drops the group from a version, because the resource name includes it.
function short(version, resource) {
  const group = resource.slice(0, resource.lastIndexOf("."));
  return version.startsWith(`${group}/`) ? version.slice(group.length + 1) : version;
}

function showMigrations(migrations) {
  $("migrations").hidden = migrations.length === 0;
  keep($("migrations"), migrations, (migration) => migration.name, () => make("li"), (line, migration) => {
    put(line, `${migration.name} of ${migration.resource}: ${migration.message || "not started"}`);
  });
}

// The stored versions of a resource, with the number of objects.
function showStored(cell, version, stored) {
  const found = stored.find(({ name }) => name === version.name)?.versions ?? [];
  const outdated = agrees(version) && found.some(([name]) => name !== version.agreed);
  const text = found.map(([name, objects]) => `${objects} ${short(name, version.name)}`).join(", ");
  mark(cell, text || "–", outdated ? "part" : text ? "good" : "off");
}

function showVersions(versions, servers, stored) {
  const agreed = versions.filter(agrees).length;
  put($("agreement"), versions.length === 0
    ? "No storage versions are known yet."
    : agreed === versions.length
      ? `All ${count(versions.length, "resource is", "resources are")} stored in one version by all servers.`
      : `${agreed} of ${count(versions.length, "resource", "resources")} agreed; servers disagree on ${versions.length - agreed}.`);
  $("versions").hidden = versions.length === 0;
  $("versions-filter").hidden = versions.length === 0;
  const shown = $("versions-differing").checked ? versions.filter((version) => !agrees(version)) : versions;
  const others = [...new Set(versions.flatMap((version) => version.writes.map(([name]) => name)))]
    .filter((name) => !servers.some((server) => server.name === name)).sort();
  const names = [...servers.map((server) => server.name), ...others];
  columns($("versions"), ["Resource", "Agreed", ...servers.map(column), ...others, "Stored"]);
  keep($("versions").tBodies[0], shown, (version) => `${version.name} ${names.length}`, () => row(names.length + 3), (line, version) => {
    put(line.cells[0], version.name);
    mark(line.cells[1], agrees(version) ? short(version.agreed, version.name) : "no", agrees(version) ? "good" : "bad");
    names.forEach((name, at) => {
      const written = version.writes.find(([who]) => who === name)?.[1];
      put(line.cells[at + 2], written === undefined ? "–" : short(written, version.name));
    });
    showStored(line.cells[names.length + 2], version, stored);
  });
}

const PROBE = [
  ["requests", "Requests", false],
  ["wrongNotFound", "Wrong 404s", true],
  ["lostEvents", "Lost watch events", true],
  ["shrunkDiscovery", "Discovery shrunk", true],
  ["failed", "Failed otherwise", true],
  ["unavailable", "503s", false],
  ["writes", "Writes", false],
  ["events", "Watch events", false],
  ["relists", "Relists", false],
  ["longestGapMillis", "Longest gap, ms", false],
];

function showRollout(rollout, servers) {
  $("rollout").hidden = !rollout;
  if (!rollout) return;
  const { steps, done, doing, outcome, from, to, probe } = rollout;
  put($("rollout-doing"), outcome !== "" ? `Finished: ${outcome}` : `${done} of ${steps} done: ${doing}`);
  $("rollout-progress").max = Math.max(steps, 1);
  $("rollout-progress").value = steps === 0 ? 1 : done;
  const lines = to.map((release, at) => ({ name: servers[at]?.name ?? String(at + 1), from: from[at], to: release, now: servers[at]?.release }));
  keep($("rollout-steps"), lines, ({ name }) => name, () => make("li"), (item, step) => {
    const there = step.now === step.to;
    put(item, `${step.name}: ${step.from} → ${step.to}${there ? " ✓" : ""}`);
    setClass(item, `mark ${there ? "good" : "off"}`);
  });
  keep($("probe"), PROBE, ([key]) => key, ([, title]) => {
    const figure = make("div");
    figure.append(make("dt", title), make("dd"));
    return figure;
  }, (figure, [key, , wrong]) => {
    const value = probe[key] ?? 0;
    put(figure.lastElementChild, number.format(value));
    setClass(figure, !wrong ? "" : value > 0 ? "bad" : "good");
  });
}

// ---- the log -----------------------------------------------------------------------------------------------------------------

// Describes the changes between two snapshots, one line each.
function news(before, next) {
  const lines = [];
  for (const server of next.servers) {
    const known = before.servers.find((other) => other.name === server.name);
    if (!known) lines.push(`Server ${server.name} (${server.release}) added`);
    else if (known.release !== server.release) lines.push(`Server ${server.name} is ${server.release} now, was ${known.release}`);
    if (known && known.phase !== server.phase) {
      lines.push(`Server ${server.name}: ${phase(server)[0]}${server.trouble === "" ? "" : ` – ${brief(server.trouble)}`}`);
    }
    if (known && known.memberState !== server.memberState && server.memberState !== "") {
      lines.push(`Member state of ${server.name}: ${server.memberState}`);
    }
  }
  const open = (snapshot) => snapshot.storageVersions.filter((version) => !agrees(version)).length;
  if (open(before) !== open(next)) {
    lines.push(open(next) === 0 ? "All storage versions agree" : `Servers disagree on ${count(open(next), "storage version", "storage versions")}`);
  }
  if (next.rollout && next.rollout.outcome !== (before.rollout?.outcome ?? "") && next.rollout.outcome !== "") {
    lines.push(`Rollout: ${next.rollout.outcome}`);
  } else if (next.rollout && next.rollout.doing !== before.rollout?.doing && next.rollout.doing !== "") {
    lines.push(`Rollout: ${next.rollout.doing}`);
  }
  return lines;
}

function record(lines) {
  for (const line of lines) {
    const now = new Date();
    const item = make("li");
    const time = make("time", now.toLocaleTimeString("en-GB"));
    time.dateTime = now.toISOString();
    item.append(time, line);
    $("log").prepend(item);
  }
  while ($("log").children.length > LOG_LINES_MAX) $("log").lastElementChild.remove();
}

// ---- connection to the lab ---------------------------------------------------------------------------------------------------

function show(snapshot) {
  measure(snapshot.forwards, performance.now());
  record(last ? news(last, snapshot) : ["The page is open"]);
  last = snapshot;
  refresh();
}

function refresh() {
  if (!last) return;
  const { lab, servers, groups, forwards, storageVersions, storedVersions = [], migrations = [], rollout } = last;
  showFacts(lab, servers);
  showServers(servers);
  showPicture(servers, forwards);
  showForwards(forwards);
  showRollout(rollout, servers);
  showMap(groups, servers);
  showMigrations(migrations);
  showVersions(storageVersions, servers, storedVersions);
}

function hear() {
  heardAt = performance.now();
  if (document.body.dataset.line === "open") return;
  document.body.dataset.line = "open";
  $("line").hidden = true;
}

function lose() {
  if (document.body.dataset.line === "lost") return;
  document.body.dataset.line = "lost";
  put($("line"), "No response from the lab. The data shown is outdated; the page reconnects by itself.");
  $("line").hidden = false;
}

function listen() {
  const events = new EventSource("events");
  events.addEventListener("snapshot", (event) => {
    hear();
    show(JSON.parse(event.data));
  });
  events.addEventListener("beat", hear);
  events.addEventListener("error", () => {
    lose();
    // The browser reopens a broken event stream, but not one that was refused.
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 1000);
  });
}

listen();
setInterval(() => {
  if (performance.now() - heardAt > SILENCE_MAX_MILLIS) lose();
}, 1000);

for (const form of [$("map-filter"), $("versions-filter")]) {
  form.addEventListener("input", refresh);
  form.addEventListener("submit", (event) => event.preventDefault());
}
