/** The levers: what each asks before it is pulled, and how it is pulled. What they do is decided by the server. */

import { on } from "./actions.js";
import { ApiError, of, send } from "./api.js";
import { clusterInSight, refresh } from "./context.js";
import { ask } from "./dialog.js";
import { moveSummary } from "./move_summary.js";
import { say } from "./toasts.js";

/** @typedef {import("./types.js").ClusterAnswer} ClusterAnswer */

/** Let the page's buttons pull the levers. */
export function registerLevers() {
  on("isolate", ({ consumer }) => lever("isolate", {
    title: `Isolate ${consumer}?`,
    happens: [
      `${consumer} closes its partitions, commits their offsets and idles until it is restored. If it cannot hear, it counts as gone.`,
      "Its partitions go to the other live consumers one by one. Partitions that do not move go on without a pause.",
    ],
    confirm: `Isolate ${consumer}`, danger: true,
    foresee: () => foresee({ without: [consumer] }),
  }, () => ({ consumer })));

  on("restore", ({ consumer }) => lever("restore", {
    title: `Restore ${consumer}?`,
    happens: [`${consumer} takes part again if it is live, and gets partitions as the assignor deals them.`],
    confirm: `Restore ${consumer}`,
    foresee: () => foresee({ joining: [{ consumer }] }),
  }, () => ({ consumer })));

  on("pause", () => lever("pause", {
    title: `Pause coordination of ${name()}?`,
    happens: [
      "Consumers go on with the partitions that they have.",
      "Nothing is planned or written until coordination is resumed. When a consumer dies, nobody takes over: its partitions are not read. A hand-over under way waits half-way.",
    ],
    confirm: "Pause coordination", danger: true,
  }));

  on("resume", () => lever("resume", {
    title: `Resume coordination of ${name()}?`,
    happens: ["The coordinator plans again, from how things stand then."],
    confirm: "Resume coordination", foresee: () => foresee({}),
  }));

  on("rebalance", () => lever("rebalance", {
    title: `Rebalance ${name()} now?`,
    happens: [
      "The coordinator plans at once: absent consumers are not waited for, and what the assignor keeps in place until somebody asks goes where it belongs.",
      "A cluster that is balanced stays as it is.",
    ],
    confirm: "Rebalance now", foresee: () => foresee({}),
  }));

  on("pin", ({ topic = "", partitions = "", consumer = "", consumers = [] }) => lever("pin", {
    title: "Pin partitions to a consumer?",
    happens: ["They go to this consumer and stay there, whatever the assignor would do, as long as it is live and takes the topic. The assignor evens out the rest."],
    fields: [
      { name: "topic", label: "Topic", value: topic },
      { name: "partitions", label: "Partitions", value: partitions, hint: "For example 0-3,7" },
      { name: "consumer", label: "Consumer", value: consumer, suggestions: consumers },
    ],
    confirm: "Pin",
  }));

  on("unpin", ({ topic, partitions }) => lever("unpin", {
    title: "Take pins back?",
    happens: ["The assignor may move these partitions again. A sticky assignor leaves them where they are as long as that is balanced."],
    fields: [
      { name: "topic", label: "Topic", value: topic },
      { name: "partitions", label: "Partitions", value: partitions, hint: "For example 0-3,7" },
    ],
    confirm: "Unpin",
  }));

  on("exclude", ({ consumer = "", topic = "", consumers = [] }) => lever("exclude", {
    title: "Keep a consumer from a topic?",
    happens: ["It gives up what it has of this topic, and gets none of it until the exclusion is taken back. Its other topics stay."],
    fields: [
      { name: "consumer", label: "Consumer", value: consumer, suggestions: consumers },
      { name: "topic", label: "Topic", value: topic },
    ],
    confirm: "Exclude", danger: true,
  }));

  on("include", ({ consumer, topic }) => lever("include", {
    title: `Let ${consumer} have ${topic} again?`,
    happens: [`The assignor may give partitions of ${topic} to ${consumer} again.`],
    confirm: "Take the exclusion back",
  }, () => ({ consumer, topic })));

  on("assignor", ({ assignor, configured }) => lever("assignor", {
    title: assignor ? `Plan with ${assignor.name} from now on?` : `Plan with ${configured} of clusters.yaml again?`,
    happens: [assignor
      ? "The coordinator plans with it from its next run on, over what clusters.yaml says, until that is taken back."
      : "The choice that a person made is taken back."],
    confirm: assignor ? `Change to ${assignor.name}` : "Take the choice back",
    foresee: assignor ? () => foresee({ assignor }) : undefined,
  }, () => ({ assignor })));

  on("apply", ({ what_if: whatIf, plan, way, moved, assignor }) => lever("apply", {
    title: way === "pins" ? `Pin the ${moved} partitions that move?` : `Change the assignor to ${assignor}?`,
    happens: way === "pins"
      ? ["Each partition that moves in this preview is pinned to who gets it there. The pins stay until they are taken back."]
      : ["The coordinator plans with it from its next run on, until that is taken back."],
    confirm: way === "pins" ? "Apply as pins" : "Change the assignor",
  }, () => ({ what_if: whatIf, plan, way })));
}

const name = () => clusterInSight()?.summary.name ?? "";

/**
 * Ask, then pull.
 * @param {string} path of the lever
 * @param {Omit<import("./dialog.js").Question, "act">} question
 * @param {() => object} [more] what is sent besides the reason, where there are no fields
 */
async function lever(path, question, more = () => ({})) {
  const cluster = name();
  await ask({
    ...question,
    act: async (values) => {
      /** @type {{lines: string[]}} */
      const done = await send(of(cluster, "levers", path), { ...more(), ...values }).catch((why) => {
        // What was shown is no longer so: behind the dialog it is shown anew.
        if (why instanceof ApiError && why.status === 409) globalThis.dispatchEvent(new Event("muster:query"));
        throw why;
      });
      say(done.lines.join(" · ") || "Done");
      refresh();
    },
  });
}

/** What would move under `whatIf`, in a few lines. @param {object} whatIf */
async function foresee(whatIf) {
  return moveSummary(await send(of(name(), "what-if"), whatIf));
}
