/**
 * Asking the server: reading with entity tags, and giving commands. The contract is `muster.dashboard`'s docstring; types
 * that no script defines (`ClusterAnswer`, `TopicRow`, ...) are the models of `muster.dashboard.models`.
 */

import { setServerClock } from "./ages.js";

/** Where the API is, beside the page. */
const BASE = new URL("./api/", document.baseURI);

/** Seconds after which the server counts as not answering. */
const PATIENCE = 20;

/** So many answers are kept for comparison. */
const KEPT = 64;

/** The server refused, or did not answer; `message` is for people. `status` is 0 when there was no answer. */
export class ApiError extends Error {
  /** @param {string} message @param {number} status */
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** @type {Map<string, {tag: string, body: any}>} */
const seen = new Map();

/**
 * Read `path`. An answer that is the same as before is the same object as before.
 * @template T
 * @param {string} path relative to `api/`
 * @returns {Promise<{body: T, readAt: number | null, ttl: number | null}>} `readAt`: when the servers were last asked;
 *   `ttl`: seconds for which the answer may be shown
 */
export async function read(path) {
  const before = seen.get(path);
  const answer = await ask(path, { headers: before ? { "If-None-Match": before.tag } : {} });
  const readAt = moment(answer, "Muster-Read-At");
  if (answer.status === 304 && before) return { body: before.body, readAt, ttl: before.body.freshness?.ttl ?? null };
  const body = await answer.json();
  const tag = answer.headers.get("ETag");
  seen.delete(path);
  if (tag) seen.set(path, { tag, body });
  for (const old of [...seen.keys()].slice(0, Math.max(0, seen.size - KEPT))) seen.delete(old);
  return { body, readAt: readAt ?? body.freshness?.read_at ?? null, ttl: body.freshness?.ttl ?? null };
}

/**
 * Send `body` to `path` and return the answer.
 * @template T
 * @param {string} path relative to `api/` @param {object} body
 * @returns {Promise<T>}
 */
export async function send(path, body) {
  const answer = await ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Muster-Request": "1" },
    body: JSON.stringify(body),
  });
  return answer.json();
}

/** The path of a cluster's endpoint. @param {string} cluster @param {...string} parts */
export function of(cluster, ...parts) {
  return ["clusters", cluster, ...parts].map(encodeURIComponent).join("/");
}

/** @param {string} path @param {RequestInit} init */
async function ask(path, init) {
  /** @type {Response} */
  let answer;
  try {
    answer = await fetch(new URL(path, BASE), {
      credentials: "same-origin", cache: "no-store", signal: AbortSignal.timeout(PATIENCE * 1000), ...init,
    });
  } catch {
    throw new ApiError("Airflow's API server does not answer", 0);
  }
  const now = moment(answer, "Muster-Now");
  if (now !== null) setServerClock(now);
  if (!answer.ok && answer.status !== 304) throw new ApiError(await detail(answer), answer.status);
  return answer;
}

/** @param {Response} answer */
async function detail(answer) {
  const said = await answer.json().catch(() => null);
  if (typeof said?.detail === "string") return said.detail;
  if (Array.isArray(said?.detail)) return said.detail.map((/** @type {any} */ one) => one.msg).join("; ");
  return `the server answered ${answer.status} ${answer.statusText}`.trim();
}

/** @param {Response} answer @param {string} header */
function moment(answer, header) {
  const value = answer.headers.get(header);
  return value === null || value === "" ? null : Number(value);
}
