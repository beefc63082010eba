// Keeps a page of the dashboard new. It fetches the same page again and puts in what differs, so
// what a page looks like is said once, in the templates of the server. When the console does not
// answer, or its broker is gone, it goes to the same page of another console of the cluster.

const LOOK = 1000; // between looks at the cluster
const PATIENCE = 1200; // for one look, and for another console
const AGAIN = 300; // until a look that failed is tried again
const LEFT = "#left="; // tells the next console which ones did not answer

const body = document.body;
const every = 1000 * Number(body.dataset.every);
const cluster = "/api/v1/cluster" + (body.dataset.broker ? `?broker=${encodeURIComponent(body.dataset.broker)}` : "");
const consoles = body.dataset.consoles.split(" ").filter(Boolean);
const left = readLeft();
let known = ""; // the cluster, in short, as the page has it
let refreshed = performance.now();
let failures = 0;

let wake = () => {}; // looks at once
let stream = null; // events, while somebody sees the page: a browser has few connections to a host
let listened = -Infinity;

const pause = ms =>
  new Promise(done => {
    const timer = setTimeout(done, ms);
    wake = () => {
      clearTimeout(timer);
      done();
    };
  });
const get = (url, ms = PATIENCE) => fetch(url, { cache: "no-store", signal: AbortSignal.timeout(ms) });

// What a page of another console said when it came here. An address that somebody made up names no console.
function readLeft() {
  if (!location.hash.startsWith(LEFT)) return [];
  const text = location.hash.slice(LEFT.length);
  history.replaceState(null, "", location.pathname + location.search);
  try {
    const [why, ...from] = decodeURIComponent(text).split(" ");
    const known = from.filter(one => consoles.includes(one));
    return known.length ? [why, ...known] : [];
  } catch {
    return [];
  }
}

function notice(text, kind = "") {
  const place = document.getElementById("notices");
  if (place.textContent === text) return;
  const line = document.createElement("p");
  line.textContent = text;
  line.className = kind;
  place.replaceChildren(...(text ? [line] : []));
}

function show(mode, text) {
  body.classList.toggle("is-live", mode === "live");
  body.classList.toggle("is-stale", mode === "stale");
  document.getElementById("mode").textContent = text;
}

// What of the cluster makes a page old at once.
function inShort(found) {
  const rows = found.members.map(row => [row.system_id, row.state, row.connected, row.in_sync]);
  return JSON.stringify([found.epoch, found.in_sync, found.handing_over, rows]);
}

// Make one element like another: attributes and text are set, children that are the same ones by
// their key or their place stay, and so do focus, selection and what somebody types.
function become(old, made) {
  if (old.isEqualNode(made)) return;
  for (const { name, value } of [...made.attributes])
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) if (!made.hasAttribute(name)) old.removeAttribute(name);
  const keyed = new Map([...old.children].filter(one => one.dataset.key).map(one => [one.dataset.key, one]));
  let next = old.firstChild;
  for (const child of [...made.childNodes]) {
    const key = child.dataset?.key;
    let mine = key ? keyed.get(key) : next;
    const isSame = mine && mine.nodeName === child.nodeName && (key || !mine.dataset?.key);
    if (!isSame) {
      old.insertBefore(document.adoptNode(child), next);
      continue;
    }
    if (mine === next) next = next.nextSibling;
    else old.insertBefore(mine, next);
    if (mine.nodeType === Node.ELEMENT_NODE) {
      if (mine.nodeName !== "FORM") become(mine, child);
    } else if (mine.data !== child.data) mine.data = child.data;
  }
  while (next) {
    const after = next.nextSibling;
    next.remove();
    next = after;
  }
}

async function refresh() {
  const answer = await get(location.href, 10 * PATIENCE);
  if (answer.status === 401 || answer.redirected) return location.reload();
  const text = await answer.text();
  if (!answer.headers.get("content-type")?.startsWith("text/html")) return;
  const page = new DOMParser().parseFromString(text, "text/html");
  for (const id of ["line", "main"]) become(document.getElementById(id), page.getElementById(id));
  document.getElementById("seen").lastChild.data = page.getElementById("seen").lastChild.data;
  document.title = page.title;
  body.dataset.gone = page.body.dataset.gone;
  refreshed = performance.now();
}

// Find a console whose broker answers; 401 is one that has to be logged in to.
async function another() {
  const others = consoles.filter(one => one !== location.origin);
  const first = others.filter(one => !left.includes(one));
  const asked = (first.length ? first : others).map(async one => {
    const answer = await get(one + "/healthz");
    if (!answer.ok && answer.status !== 401) throw new Error(one);
    return one;
  });
  return Promise.any(asked).catch(() => "");
}

async function leave(why) {
  const next = await another();
  if (!next) return false;
  const params = new URLSearchParams(location.search);
  params.delete("broker"); // a name that the other console may not know
  const query = params.size ? `?${params}` : "";
  location.replace(next + location.pathname + query + LEFT + encodeURIComponent([why, ...new Set([...left.slice(1), location.origin])].join(" ")));
  return true;
}

// Hear of changes as soon as the console does, and of its end.
function listen() {
  if (stream && stream.readyState !== EventSource.CLOSED) return;
  if (performance.now() - listened < 10 * LOOK) return;
  listened = performance.now();
  stream = new EventSource("/api/v1/events?kind=state,role,insync,member");
  for (const name of ["state", "log", "gap", "error"]) stream.addEventListener(name, () => wake());
}

document.addEventListener("visibilitychange", () => {
  stream?.close();
  listened = -Infinity;
  wake();
});

async function look() {
  let answer;
  try {
    answer = await get(cluster);
  } catch {
    failures += 1;
    if (failures < 2) return AGAIN;
    show("stale", "not live,");
    if (!(await leave("console")))
      notice(`The console at ${location.host} does not answer. What stands here is old; it is tried again each second.`, "is-bad");
    return LOOK;
  }
  if (failures >= 2) notice("");
  failures = 0;
  const now = answer.ok ? inShort(await answer.json()) : `status ${answer.status}`;
  if (now !== known || performance.now() - refreshed >= every) {
    await refresh();
    known = now;
  }
  show("live", "live,");
  listen();
  if (body.dataset.gone === "yes") await leave("broker");
  return LOOK;
}

if (left.length > 1) {
  const hosts = left.slice(1).map(one => new URL(one).host);
  const whose = left[0] === "broker" ? "The broker of the console" : "The console";
  notice(`${whose} at ${hosts.at(-1)} does not answer. This is ${location.host}.`);
}
// A page that asks whether something is to be done stays as it is.
for (let wait = 0; every; ) {
  await pause(wait);
  if (document.hidden) {
    wait = LOOK;
    continue;
  }
  try {
    wait = await look();
  } catch (error) {
    console.warn(error);
    wait = LOOK;
  }
}
