"""The dashboard: a FastAPI application that Airflow's API server mounts at `/muster` (`muster.airflow.plugin`).

Everything that it answers is in `muster.dashboard.models`, with units and meaning; that is the contract between the
server and the page. All paths below are relative to `/muster/`, so that it works behind a proxy with a prefix.

Pages
- `GET  ./`: the page itself (`static/index.html`); it chooses its view by the part of the address behind `#`.
- `GET  of-dag/{dag_id}`: leads to the cluster of a DAG (`./#/clusters/{cluster}`).
- `GET  api/commands` -> `CommandsAnswer`: the table of commands, from which menus and dialogs are made.
- `GET  static/{path}`: what the page consists of. No script or style may stand in the HTML itself (CSP).

Reading (right to read the cluster's coordinator DAG)
- `GET  api/clusters` -> `ClustersAnswer`: only the clusters that the user may read.
- `GET  api/clusters/{cluster}` -> `ClusterAnswer`
- `GET  api/clusters/{cluster}/topics?state=&search=&sort=&order=&offset=&limit=` -> `TopicsAnswer`
- `GET  api/clusters/{cluster}/topics/{topic}` -> `TopicAnswer`: the matrix of one topic, in columns.
- `GET  api/clusters/{cluster}/consumers?state=&search=&sort=&order=&offset=&limit=` -> `ConsumersAnswer`
- `GET  api/clusters/{cluster}/consumers/{consumer}` -> `ConsumerAnswer`
- `GET  api/clusters/{cluster}/timeline?topic=&consumer=&before=&limit=` -> `TimelineAnswer`
- `POST api/clusters/{cluster}/what-if`, `WhatIfRequest` -> `WhatIfAnswer`: changes nothing.

Commands (right to create runs of the DAG of the cluster's commands); each answers `CommandAnswer`
- `POST api/clusters/{cluster}/levers/{command}`: a command of `muster.commands.table`, with its fields and `reason`
- `POST api/clusters/{cluster}/levers/{command}/foresee`: what it would do, of commands with `foresees`.
- `POST api/clusters/{cluster}/levers/apply`: `ApplyBody`, what a preview showed.

Every POST has to be JSON (`Content-Type: application/json`) with the header `X-Muster-Request: 1`, and must not come
from another site; otherwise it is refused with 403 (415 for another content type).

Errors have a `detail` for people to read, and the status 401 (not logged in), 403 (not allowed), 404 (no such
cluster, topic or consumer), 409 (the command cannot be carried out, or the plan is no longer the one that was shown),
422 (the request is not understood) or 503 (a command or preview needs a server that is out of reach, or the very
first reading takes long). Otherwise reading never ends in an error because a server is out of reach: the answer then
says which, since when, and how old what it shows is (`Freshness`).

Live updates are by asking again, with `If-None-Match`: an answer whose content has not changed is a 304 without
a body. Every answer, 304 too, has `Muster-Read-At` and `Muster-Now` (both seconds since the epoch, by the server's
clock), so the age of what is shown is known without a body; `Freshness.read_at` and `ttl` alone do not count as
a change. Ask every `Freshness.ttl` seconds; all viewers share one reading of the servers. Not server-sent events:
each viewer would hold a connection of the API server open, rights would be checked once and not again, and proxies
tend to collect them.

What the page must know of where it is: Airflow shows it in an iframe whose sandbox allows scripts, forms and
downloads, but no new windows, and not to lead the window above elsewhere. The Content-Security-Policy takes scripts
and styles from `static/` only, so no `style=` in HTML (setting `element.style.x` from a script is fine).
"""
