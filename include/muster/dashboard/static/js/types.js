/** The shapes of the server's answers, as `muster.dashboard.models` has them; a test holds the two against each other. */

/**
 * @typedef {object} ErrorAnswer
 * @property {string} detail
 */

/**
 * @typedef {object} SourceHealth
 * @property {"zookeeper" | "consul" | "kafka" | "consumers" | "history"} source
 * @property {boolean} reachable
 * @property {string} address
 * @property {string} error
 * @property {number | null} unreachable_since
 * @property {number | null} last_read_at
 */

/**
 * @typedef {object} Freshness
 * @property {number | null} read_at
 * @property {number} ttl
 * @property {SourceHealth[]} sources
 */

/**
 * @typedef {object} Problem
 * @property {"critical" | "warning"} level
 * @property {string} what
 * @property {string | null} topic
 * @property {string | null} consumer
 */

/**
 * @typedef {object} Said
 * @property {string} by
 * @property {number | null} at
 * @property {string} why
 */

/**
 * @typedef {object} LastRebalance
 * @property {number} at
 * @property {string} reason
 * @property {number} topics
 * @property {number | null} moved
 * @property {number | null} lasted
 */

/**
 * @typedef {object} ConsumerCounts
 * @property {number} live
 * @property {number} isolated
 * @property {number} missing
 * @property {number} not_passing
 * @property {number} unknown
 */

/**
 * @typedef {object} ClusterSummary
 * @property {string} name
 * @property {string} health
 * @property {string} error
 * @property {string} coordinator_dag
 * @property {boolean} may_edit
 * @property {Said | null} paused
 * @property {Said | null} rebalance_asked
 * @property {"Stable" | "Rebalancing" | "Empty" | "Unknown"} state
 * @property {number | null} since
 * @property {Record<string, number>} topics
 * @property {number} partitions
 * @property {Record<string, number>} partition_states
 * @property {number} pinned
 * @property {ConsumerCounts} consumers
 * @property {number | null} lag
 * @property {number} lag_unknown
 * @property {number | null} rate
 * @property {number | null} consumed_rate
 * @property {LastRebalance | null} last_rebalance
 * @property {string} assignor
 * @property {Problem[]} problems
 * @property {number} problem_count
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} ClustersAnswer
 * @property {string} user
 * @property {ClusterSummary[]} clusters
 * @property {string} error
 */

/**
 * @typedef {object} Isolation
 * @property {string} consumer
 * @property {Said} said
 */

/**
 * @typedef {object} PinEntry
 * @property {string} topic
 * @property {[number, number][]} partitions
 * @property {string} consumer
 * @property {Said} said
 * @property {string} obstacle
 */

/**
 * @typedef {object} ExclusionEntry
 * @property {string} consumer
 * @property {string} topic
 * @property {Said} said
 */

/**
 * @typedef {object} WaitingEntry
 * @property {string} topic
 * @property {string} consumer
 * @property {"answer" | "close" | "start" | "progress"} phase
 * @property {[number, number][]} partitions
 * @property {string} why
 * @property {number | null} since
 */

/**
 * @typedef {object} AssignorInForce
 * @property {string} name
 * @property {Record<string, any>} options
 * @property {boolean} from_settings
 * @property {Said | null} said
 * @property {string} configured
 */

/**
 * @typedef {object} CommandState
 * @property {string} lever
 * @property {boolean} available
 * @property {string} why_not
 */

/**
 * @typedef {object} ClusterAnswer
 * @property {ClusterSummary} summary
 * @property {Problem[]} problems
 * @property {WaitingEntry[]} waiting
 * @property {number} waiting_count
 * @property {Isolation[]} isolated
 * @property {PinEntry[]} pins
 * @property {number} pin_count
 * @property {ExclusionEntry[]} exclusions
 * @property {AssignorInForce} assignor
 * @property {string[]} assignors
 * @property {string | null} shadow_assignor
 * @property {number} stuck_after
 * @property {number} tick
 * @property {string} group_id
 * @property {string} consul_service
 * @property {CommandState[]} levers
 * @property {OverrideEntry[]} overrides
 */

/**
 * @typedef {object} TopicRow
 * @property {string} topic
 * @property {"Initial" | "Starting" | "Stable" | "Closing" | "Unreadable"} state
 * @property {number | null} since
 * @property {string} error
 * @property {string} stuck
 * @property {string} reason
 * @property {number} epoch
 * @property {number} partitions
 * @property {Record<string, number>} partition_states
 * @property {number} pinned
 * @property {number} owners
 * @property {number | null} lag
 * @property {number | null} rate
 */

/**
 * @typedef {object} TopicsAnswer
 * @property {TopicRow[]} topics
 * @property {number} total
 * @property {number} offset
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} TopicAnswer
 * @property {TopicRow} row
 * @property {[number, number][]} partitions
 * @property {string[]} consumers
 * @property {string} state
 * @property {number[]} owner
 * @property {number[]} source
 * @property {number[]} target
 * @property {(number | null)[]} lag
 * @property {(number | null)[]} rate
 * @property {(number | null)[]} committed
 * @property {(number | null)[]} end
 * @property {PinEntry[]} pins
 * @property {Record<number, string[]>} standbys
 * @property {WaitingEntry[]} waiting
 * @property {ExclusionEntry[]} exclusions
 * @property {string} bootstrap_servers
 * @property {string} group_id
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} ConsumerRow
 * @property {string} consumer
 * @property {"live" | "isolated" | "not passing" | "gone" | "unknown"} state
 * @property {boolean} expected
 * @property {Said | null} said
 * @property {string} error
 * @property {string} doing
 * @property {string} host
 * @property {string} address
 * @property {string} version
 * @property {string} incarnation
 * @property {number | null} started_at
 * @property {number} partitions
 * @property {number} running
 * @property {number} starting
 * @property {number} closing
 * @property {number} pinned
 * @property {number} topics
 * @property {string[]} commands
 * @property {OverrideEntry[]} overrides
 * @property {number | null} lag
 * @property {number | null} rate
 * @property {number | null} share
 * @property {number | null} weight
 * @property {number | null} priority
 * @property {string | null} zone
 */

/**
 * @typedef {object} ConsumersAnswer
 * @property {ConsumerRow[]} consumers
 * @property {number} total
 * @property {number} offset
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} ConsumerTopic
 * @property {string} topic
 * @property {[number, number][]} running
 * @property {[number, number][]} starting
 * @property {[number, number][]} closing
 * @property {[number, number][]} unknown
 * @property {[number, number][]} standby
 * @property {[number, number][]} pinned
 * @property {number | null} lag
 * @property {number | null} rate
 */

/**
 * @typedef {object} ConsumerAnswer
 * @property {ConsumerRow} row
 * @property {ConsumerTopic[]} topics
 * @property {string[]} errors
 * @property {ExclusionEntry[]} exclusions
 * @property {string[] | null} subscribes
 * @property {number | null} records
 * @property {number | null} batches
 * @property {number | null} last_batch_at
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} MoveEntry
 * @property {string} topic
 * @property {[number, number][]} partitions
 * @property {string | null} source
 * @property {string | null} target
 * @property {string} why
 */

/**
 * @typedef {object} TimelineEntry
 * @property {string} id
 * @property {number} at
 * @property {"transition" | "lever" | "unreadable"} kind
 * @property {string | null} topic
 * @property {string | null} lever
 * @property {Record<string, any>} details
 * @property {string | null} before
 * @property {string | null} after
 * @property {string} reason
 * @property {string | null} who
 * @property {number | null} epoch
 * @property {number} moved
 * @property {MoveEntry[]} moves
 * @property {number | null} lasted
 * @property {number | null} rebalance_lasted
 * @property {string} by
 */

/**
 * @typedef {object} TimelineAnswer
 * @property {TimelineEntry[]} entries
 * @property {number | null} next_before
 * @property {Freshness} freshness
 */

/**
 * @typedef {object} ShareEntry
 * @property {string} consumer
 * @property {number} before
 * @property {number} after
 * @property {number} weight
 * @property {string | null} zone
 */

/**
 * @typedef {object} BalanceEntry
 * @property {number} consumers
 * @property {number} partitions
 * @property {number} least
 * @property {number} most
 * @property {number} unowned
 * @property {string} words
 */

/**
 * @typedef {object} Applicable
 * @property {boolean} possible
 * @property {string} why_not
 */

/**
 * @typedef {object} WhatIfAnswer
 * @property {string} plan
 * @property {string} assignor
 * @property {string} held
 * @property {number} moved
 * @property {MoveEntry[]} moves
 * @property {[string, number][]} reasons
 * @property {ShareEntry[]} shares
 * @property {number} share_count
 * @property {BalanceEntry} before
 * @property {BalanceEntry} after
 * @property {string[]} impossible_pins
 * @property {string[]} under_way
 * @property {Record<string, string>} unreadable
 * @property {string[]} warnings
 * @property {Applicable} as_pins
 * @property {Applicable} as_assignor
 */

/**
 * @typedef {object} CommandAnswer
 * @property {string[]} lines
 * @property {Record<string, any>} values
 */

/**
 * @typedef {object} CommandField
 * @property {string} name
 * @property {"consumer" | "topic" | "partitions" | "pattern" | "assignor"} kind
 * @property {string} label
 * @property {string} hint
 */

/**
 * @typedef {object} CommandEntry
 * @property {string} name
 * @property {string} label
 * @property {string} question
 * @property {string[]} happens
 * @property {CommandField[]} fields
 * @property {"cluster" | "consumer" | "topic" | "partitions" | "assignor"} subject
 * @property {string} undo
 * @property {string} override
 * @property {boolean} risky
 * @property {Record<string, any> | null} preview
 */

/**
 * @typedef {object} CommandsAnswer
 * @property {CommandEntry[]} commands
 * @property {Record<string, string>} did
 */

/**
 * @typedef {object} OverrideEntry
 * @property {string} command
 * @property {Record<string, any>} on
 * @property {Said} said
 */

export {};
