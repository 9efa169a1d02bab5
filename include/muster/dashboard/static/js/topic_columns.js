/** A topic's answer, which is in columns, as rows of the matrix. Pure. */

/**
 * One partition.
 * @typedef {object} PartitionRow
 * @property {string} topic
 * @property {number} partition
 * @property {string} state a letter
 * @property {string | null} owner
 * @property {string | null} source who is to close it
 * @property {string | null} target who is to have it next
 * @property {number | null} lag
 * @property {number | null} age seconds, of the oldest record that is not committed
 * @property {number | null} rate
 * @property {number | null} committed
 * @property {number | null} end
 * @property {PinEntry | null} pin
 * @property {string[]} standbys
 * @property {Record<string, string>} copies how warm the copies of its state are, and what they lack, by consumer
 * @property {ParkedEntry | null} parked
 * @property {ShardEntry | null} shard
 */

/** @param {TopicAnswer} answer @returns {PartitionRow[]} by partition number */
export function partitionRows(answer) {
  const who = (/** @type {number[]} */ column, /** @type {number} */ i) => answer.consumers[column[i] ?? -1] ?? null;
  const pins = pinsByPartition(answer.pins);
  return numbers(answer.partitions).map((partition, i) => ({
    topic: answer.row.topic,
    partition,
    state: answer.state[i],
    owner: who(answer.owner, i),
    source: who(answer.source, i),
    target: who(answer.target, i),
    lag: answer.lag[i] ?? null,
    age: answer.age[i] ?? null,
    rate: answer.rate[i] ?? null,
    committed: answer.committed[i] ?? null,
    end: answer.end[i] ?? null,
    pin: pins.get(partition) ?? null,
    standbys: answer.standbys[partition] ?? [],
    copies: answer.copies[partition] ?? {},
    parked: answer.parked[partition] ?? null,
    shard: answer.shards[partition] ?? null,
  }));
}

/** Every number of ranges, in their order. @param {[number, number][]} pairs */
export function numbers(pairs) {
  return pairs.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, i) => first + i));
}

/** @param {PinEntry[]} pins */
function pinsByPartition(pins) {
  return new Map(pins.flatMap((pin) => numbers(pin.partitions).map((partition) => /** @type {const} */ ([partition, pin]))));
}

/**
 * How a partition shows in the column of `consumer` (null: the column of partitions without an owner); null where it does not.
 * @param {PartitionRow} row @param {string | null} consumer
 * @returns {{state: string, role: "owner" | "target" | "standby", letter: string} | null}
 */
export function cellOf(row, consumer) {
  if (consumer === null) {
    return row.owner === null && row.source === null ? { state: row.state, role: "owner", letter: row.state } : null;
  }
  // Who is to close it still has it, though it is no longer assigned to him.
  if (row.source === consumer) return { state: "C", role: "owner", letter: "C" };
  if (row.owner === consumer) return { state: row.state === "C" ? "S" : row.state, role: "owner", letter: row.state === "C" ? "S" : row.state };
  if (row.target === consumer) return { state: row.state, role: "target", letter: "→" };
  if (row.standbys.includes(consumer)) return { state: row.state, role: "standby", letter: "s" };
  return null;
}

/**
 * A state of the partition in words, with the offset that a parked one waits at.
 * @param {PartitionRow} row @param {string} state @param {(state: string) => string} word
 */
export function condition(row, state, word) {
  return state === "K" && row.parked ? `${word(state)} at offset ${row.parked.offset}` : word(state);
}

/** What its owner does not get on for, '' for nothing. @param {PartitionRow} row */
export function obstacle(row) {
  return row.parked?.why || row.shard?.differs || row.shard?.restoring || "";
}

/**
 * A partition in words, as it shows in the column of `consumer`.
 * @param {PartitionRow} row @param {string | null} consumer @param {(state: string) => string} word
 */
export function spoken(row, consumer, word) {
  const cell = cellOf(row, consumer);
  const where = `${row.topic} partition ${row.partition}, ${consumer ?? "no owner"}`;
  if (!cell) return `${where}: nothing`;
  if (cell.role === "target") return `${where}: is to have it next`;
  if (cell.role === "standby") return `${where}: standby${row.copies[consumer ?? ""] ? `, ${row.copies[consumer ?? ""]}` : ""}`;
  const parts = [condition(row, cell.state, word)];
  if (row.pin) parts.push(`pinned to ${row.pin.consumer}`);
  if (row.lag !== null) parts.push(`lag ${row.lag}`);
  if (row.rate !== null) parts.push(`${row.rate.toFixed(1)} records a second`);
  return `${where}: ${parts.join(", ")}`;
}
