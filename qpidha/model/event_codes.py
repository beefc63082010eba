"""Event codes: a number for what an operator meets in logs and errors, and what to do about it.

A code is a text such as `QHA2104`. It stands at the end of a line of the log, in the errors of the
admin socket and of AMQP, and in those of `qpid-ha`; `docs/messages.md` is made from this table. A
code keeps its meaning for ever: one that is not used any more is not given again. QHA1 is the life
and role of a broker, QHA2 replication, QHA3 disk and memory, QHA4 who may do what, QHA6
connections, QHA7 queues and messages, QHA8 links to other brokers, QHA9 our own mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = {
    "1": "A broker and its role",
    "2": "Promotion and replication",
    "3": "Disk and memory",
    "4": "Who may do what",
    "6": "Connections",
    "7": "Queues and messages",
    "8": "Links to other brokers",
    "9": "Mistakes of the broker itself",
}
"""First digit of a code -> what codes with it are about."""


@dataclass(frozen=True, slots=True)
class EventCode:
    """One row: what the event means, why it happens, and what to do."""

    code: str
    meaning: str
    cause: str
    remedy: str


TABLE: dict[str, EventCode] = {}
"""Every code, in the order of its numbers."""
NOTHING = "Nothing."


def _code(code: str, meaning: str, cause: str, remedy: str) -> str:
    TABLE[code] = EventCode(code, meaning, cause, remedy)
    return code


# -- a broker and its role -------------------------------------------------------------------------

STARTS = _code(
    "QHA1001",
    "A broker starts. The line names the options that are not at their defaults.",
    "Somebody, or the cluster manager, started it.",
    "Nothing. If it comes again and again, look at the last lines before it.",
)
LISTENS = _code(
    "QHA1002",
    "The broker takes connections.",
    "It has read its files and its write-ahead log.",
    NOTHING,
)
STOPS = _code(
    "QHA1003",
    "The broker ends.",
    "It was asked to: SIGTERM, SIGINT, or the method `shutdown`.",
    NOTHING,
)
STOPS_BY_FAULT = _code(
    "QHA1004",
    "The broker ends because it cannot go on; its exit code says so.",
    "The line has the reason, such as a disk that cannot be written.",
    "Mend what the line names and start it again. Where a cluster manager watches it, another "
    "broker is promoted meanwhile.",
)
CANNOT_START = _code(
    "QHA1005",
    "`qpidhad` does not start.",
    "An option, a file that an option names, a port, a socket or the data directory cannot be "
    "used.",
    "Do what stands after `next:`. `qpidhad --check` tests a configuration without starting.",
)
RELOADED = _code(
    "QHA1006",
    "Users, access control, certificates and the log's options were read again.",
    "SIGHUP, or `qpid-ha reload`.",
    NOTHING,
)
RELOAD_REFUSED = _code(
    "QHA1007",
    "Nothing was read again: the broker goes on with what it had.",
    "One of the files has a mistake; the line names it.",
    "Mend the file and reload again. `qpidhad --check` finds the same mistake.",
)
ODD_SETTING = _code(
    "QHA1008",
    "A setting, or a file that a setting names, deserves a look.",
    "It is legal, and hardly meant so: a certificate that expires, a port open to everybody, an "
    "option that has no effect, or one that needs a restart.",
    "Follow the line, or leave it if it is meant.",
)
NOT_COMMANDED = _code(
    "QHA1009",
    "`qpidhad -c`, `--quit` or `--kill` could not ask or end the broker that runs.",
    "Another user owns it, it runs in another container, or it takes longer to end than `--wait`.",
    "Do what stands after `next:`.",
)
STATE_CHANGED = _code(
    "QHA1201",
    "The broker is in another state.",
    "It joins, catches up, is ready, is promoted or steps down. "
    "[All states](docs/internals/states.md).",
    NOTHING,
)
RECOVERING = _code(
    "QHA1202",
    "A new primary waits for the backups of the former one before it is active.",
    "What they have confirmed is to be on as many brokers as before.",
    "Nothing for `ha-backup-timeout`. If it takes longer: `qpid-ha status --explain`.",
)
PROMOTED = _code(
    "QHA1203",
    "The broker is the primary from now on, with a new epoch.",
    "The cluster manager, or an administrator, promoted it: after a failover, a switchover or the "
    "first start.",
    "Look at the former primary if it did not step down by itself: `qpid-ha list`.",
)
RECOVERED = _code(
    "QHA1204",
    "Every backup that the new primary waited for is ready, or is waited for no longer.",
    "They came back, or `ha-backup-timeout` was over.",
    NOTHING,
)
STEPPED_DOWN = _code(
    "QHA1205",
    "A primary became a backup, and its clients go to another broker.",
    "It was demoted, handed over, or heard of a primary with a higher epoch.",
    "Nothing after a demotion or a switchover. Otherwise look why another broker was promoted: "
    "its log has QHA1203.",
)
HANDING_OVER = _code(
    "QHA1206",
    "A switchover is under way: clients wait until the target has everything.",
    "`qpid-ha switchover`.",
    NOTHING,
)
HANDED_OVER = _code(
    "QHA1207",
    "A switchover is done: the target is primary, and nothing was lost.",
    "`qpid-ha switchover`.",
    NOTHING,
)
NOT_HANDED_OVER = _code(
    "QHA1208",
    "A switchover was given up; the line says which broker is primary now.",
    "The target did not catch up in time, was lost, or refused.",
    "Look at `qpid-ha status --explain` and try again.",
)
LOSS_ACCEPTED = _code(
    "QHA1209",
    "A broker was promoted whatever is lost by that; the line says what is known of it.",
    "An administrator promoted it with `--accept-loss`.",
    "Find out what applications lost. What a broker has alone, it sets aside when it joins: "
    "QHA3109.",
)
PROMOTED_WITHOUT = _code(
    "QHA1210",
    "A broker was promoted without others, which will not come back.",
    "An administrator named them with `--forget`.",
    "Put empty brokers in their place. Never start the old ones with their former data.",
)
OUTAGE_LOSS = _code(
    "QHA1211",
    "The cluster goes on after an outage of all its brokers, and has what was on disk.",
    "All brokers stopped at once, and some of the last records had not reached a disk.",
    "Have producers send again what they are not sure of.",
)

# -- promotion and replication ---------------------------------------------------------------------

PROMOTION_REFUSED = _code(
    "QHA2101",
    "A broker was not promoted.",
    "The message says why.",
    "Follow the hint; `qpid-ha list` and `qpid-ha recover` show what each broker has.",
)
NO_MAJORITY = _code(
    "QHA2102",
    "A broker was not promoted: too few of the others answered.",
    "With `ha-safety=strict` a majority of the brokers must agree, so that there are never two "
    "primaries. The others are down, or cut off.",
    "Start the others, or mend the network between them.",
)
NOT_IN_SYNC_SET = _code(
    "QHA2103",
    "A broker was not promoted: it is not in the newest in-sync set.",
    "Messages were accepted without it, so that it may lack some.",
    "Promote one of those that the message names, or wait: "
    "`qpid-ha wait --for state=ready -b ADDR`.",
)
CATCHING_UP = _code(
    "QHA2104",
    "A broker was not promoted: it is still catching up.",
    "It joined a short time ago and lacks messages that the primary has.",
    "Promote one that is ready, or wait: `qpid-ha wait --for state=ready -b ADDR`.",
)
ANOTHER_IS_AHEAD = _code(
    "QHA2105",
    "A broker was not promoted: another one is primary, or has more.",
    "By promoting it, what the other one has would be lost.",
    "Promote the other one, or hand over: `qpid-ha switchover`.",
)
OTHERS_SILENT = _code(
    "QHA2106",
    "A broker was not promoted: brokers did not answer that may have more.",
    "After an outage of several brokers only a comparison of all of them shows who has the newest "
    "messages.",
    "Start those that the message names. If they are lost: `qpid-ha recover` says what would be.",
)
NEW_WITHOUT_VOTE = _code(
    "QHA2107",
    "A broker that is new has no vote yet, and a majority is not reached without it.",
    "Its data directory is empty. It may have promised something before it lost its disk, so it "
    "waits until it has heard all others.",
    "Start all brokers; `qpid-ha status --explain` says which one it waits for.",
)
OVERTAKEN = _code(
    "QHA2108",
    "A promotion came to nothing: another one was quicker.",
    "Others have promised an epoch as high to another broker, or the state changed meanwhile.",
    "See who is primary: `qpid-ha status --all`.",
)
STORE_UNKNOWN = _code(
    "QHA2109",
    "A broker was not promoted: what the cluster manager's store keeps is not known.",
    "With `ha-recorder=manager` the cluster manager keeps the in-sync set. It does not answer, or "
    "its record was lost.",
    "Look at the cluster manager and its logs.",
)
HANDOVER_REFUSED = _code(
    "QHA2110",
    "A switchover was not begun.",
    "The broker that was asked is not an active primary, or the target is not ready and in sync.",
    "Ask the primary, and wait for the target: `qpid-ha wait --for ready=1`.",
)
NOT_IN_CLUSTER = _code(
    "QHA2111",
    "The broker is in no cluster, so that there is nothing to promote or to replicate.",
    "It was started without `ha-cluster=yes`.",
    "Set `ha-cluster=yes` and `ha-brokers-url`, and restart it.",
)
PRIMARY_LOST = _code(
    "QHA2201",
    "A backup has lost its connection to the primary.",
    "The primary stopped, hangs, or cannot be reached.",
    "Nothing if another broker is promoted (QHA1203) or the connection comes back (QHA2204). "
    "Otherwise look at the primary and the network.",
)
BACKUP_LOST = _code(
    "QHA2202",
    "The primary has lost its connection to a backup.",
    "The backup stopped, hangs, or cannot be reached.",
    "Look at the backup and its log. Producers go on as soon as the in-sync set is without it "
    "(QHA2206).",
)
PEER_UNREACHABLE = _code(
    "QHA2203",
    "There is no connection to another broker of the cluster; it is dialled again.",
    "It is not running, refuses this one, or the network is down. The line has the reason.",
    "Start it, or look at the address in `ha-brokers-url`, at the login and at the certificates.",
)
PRIMARY_FOUND = _code(
    "QHA2204",
    "A backup is connected to the primary.",
    "It found it among `ha-brokers-url`.",
    NOTHING,
)
BACKUP_READY = _code(
    "QHA2205",
    "A backup has everything and may be promoted.",
    "It caught up with the primary.",
    NOTHING,
)
OUT_OF_SYNC = _code(
    "QHA2206",
    "A backup is not in the in-sync set any more: messages are accepted without it.",
    "Its connection was lost, or it confirmed nothing for `ha-backup-timeout`.",
    "Mend the backup: there is one copy less of each message until it is ready again.",
)
BACKUP_STALLED = _code(
    "QHA2207",
    "A backup did not come back, or confirms nothing, for `ha-backup-timeout`.",
    "It is down, hangs, or its disk or network is too slow.",
    "Look at its host: load, disk, network.",
)
NOTHING_ACKNOWLEDGED = _code(
    "QHA2208",
    "Producers get no acknowledgement: fewer brokers are in sync than `ha-min-in-sync` wants.",
    "Backups are away.",
    "Start them. `qpid-ha status --explain` says for whom it waits.",
)
ACKNOWLEDGING = _code(
    "QHA2209",
    "Enough brokers are in sync again, and producers get their acknowledgements.",
    "Backups came back.",
    NOTHING,
)
STARTS_OVER = _code(
    "QHA2210",
    "A backup fetches everything anew.",
    "It was away for longer than the log of the primary goes back, or it has what the primary has "
    "not.",
    "Nothing. If it happens often with a backup that was away for a short time, give the primary "
    "a larger `log-memory`.",
)
BATCH_REFUSED = _code(
    "QHA2211",
    "A backup refused what a broker sent it, and hung up.",
    "A former primary did not know yet that there is a new one; or records were missing in "
    "between.",
    "Nothing for an older epoch. If it goes on, report it with the logs of both brokers.",
)
WRONG_IDENTITY = _code(
    "QHA2213",
    "Two brokers have the same system id, and one of them is kept out.",
    "A data directory was copied.",
    "Stop the copy, empty its data directory, and start it again: it gets everything from the "
    "primary.",
)
SETTINGS_DIFFER = _code(
    "QHA2214",
    "Two brokers of a cluster have different settings that must be equal.",
    "`ha-recorder`, or `ha-replicate`, was changed on one of them only.",
    "Give all brokers the same, and restart those that change.",
)
BROKER_REFUSED = _code(
    "QHA2216",
    "A broker was not let into the cluster: it is too old for what the log uses.",
    "The cluster uses a feature of a later version.",
    "Upgrade that broker.",
)
REPLICA_WHOLE = _code(
    "QHA2301",
    "A replica of a queue elsewhere has all that its source has.",
    "It was started, or its source was away, and it has caught up.",
    NOTHING,
)
REPLICA_LOST = _code(
    "QHA2302",
    "A replica of a queue elsewhere has no connection to its source; it is dialled again.",
    "The source is down or cannot be reached, or it refuses: the line has the reason.",
    "Look at the source. If it is lost for good, make the replica a queue of its own: "
    "`qpid-ha replica stop NAME`. [Queue replication](docs/queue-replication.md).",
)
REPLICA_BLOCKED = _code(
    "QHA2303",
    "A replica does not follow its source, which is not what it was; the replica keeps what it "
    "has.",
    "The queue there was deleted and declared again, or its broker has lost what the replica has.",
    "Keep what the replica has (`qpid-ha replica stop NAME`), or give it up for what the source "
    "has (`qpid-ha replicate NAME BROKER --replace`).",
)
REPLICA_STARTED = _code(
    "QHA2304",
    "A queue is a replica of a queue elsewhere from now on.",
    "An administrator asked for it: `qpid-ha replicate`.",
    NOTHING,
)
REPLICA_ENDED = _code(
    "QHA2305",
    "A queue was a replica of a queue elsewhere, and is a queue of its own now.",
    "An administrator asked for it: `qpid-ha replica stop`.",
    NOTHING,
)
REPLICA_NOT_SERVED = _code(
    "QHA2306",
    "A broker does not let another one have a replica of one of its queues.",
    "It has `ha-queue-replication=no`, the queue is a replica itself, or who asks may not.",
    "Follow the hint of the message.",
)

# -- disk and memory -------------------------------------------------------------------------------

DISK_SHORT = _code(
    "QHA3101",
    "Senders get no credit: a disk is nearly full.",
    "The disk of `data-dir`, here or on a backup, has little more space than `disk-free-limit`, or "
    "than dead letters may need.",
    "Make space, or consume messages. [What to do](docs/operations.md#the-disk-is-full).",
)
DISK_FULL = _code(
    "QHA3102",
    "No messages are accepted: a disk is full.",
    "The disk of `data-dir`, here or on a backup, has less space than `disk-free-limit`.",
    "Make space, or consume messages. [What to do](docs/operations.md#the-disk-is-full).",
)
DISK_HAS_SPACE = _code(
    "QHA3103",
    "Messages are taken again: the disk has space.",
    "Files were removed, or messages consumed.",
    NOTHING,
)
LOG_NOT_WRITTEN = _code(
    "QHA3104",
    "The write-ahead log cannot be written or read, and the broker stops.",
    "The disk failed, is full, or is too slow to be synced.",
    "Look at the kernel's log (`dmesg`) and at the disk. Start the broker again when it is mended.",
)
STATE_NOT_SAVED = _code(
    "QHA3105",
    "The state file cannot be written, and the broker stops.",
    "The disk of `data-dir` failed or is full.",
    "As for QHA3104.",
)
LOG_DAMAGED = _code(
    "QHA3106",
    "The write-ahead log is damaged where it was synced, and the broker does not start with it.",
    "The disk lost or changed what it had, or somebody changed the files.",
    "In a cluster: empty the data directory and start it, and it gets everything from the "
    "primary. Alone: `qpid-ha journal verify DIR` and `qpid-ha journal salvage DIR`.",
)
UPGRADE_NEEDED = _code(
    "QHA3107",
    "Files, or what a broker was sent, are of a later version.",
    "The broker was downgraded, or is older than the others.",
    "Start it with the version that wrote the files, or a later one.",
)
STATE_LOST = _code(
    "QHA3108",
    "The state file is lost or damaged, and with it what the broker promised to others.",
    "The disk lost it, or somebody removed it.",
    "Start the broker with an empty data directory, as a new one, while the others run.",
)
SET_ASIDE = _code(
    "QHA3109",
    "Records that the primary does not have were set aside in a folder.",
    "The broker was cut off while it was primary, or another one was promoted without its records.",
    "Look at them: `qpid-ha journal list DIR`. Send again what is needed: "
    "`qpid-ha journal salvage`.",
)
CUT_OFF = _code(
    "QHA3110",
    "The end of the write-ahead log was cut off.",
    "The broker, or its machine, stopped in the middle of a write.",
    "Nothing: what was not complete had not been acknowledged.",
)
NO_CHECKPOINT = _code(
    "QHA3111",
    "The write-ahead log is not made smaller for now.",
    "There is no room for a checkpoint, or it could not be written.",
    "Make space on the disk of `data-dir`, or consume messages.",
)
STATE_COPY_USED = _code(
    "QHA3112",
    "The state file could not be read, and its copy is used.",
    "The machine stopped in the middle of a write, or the disk failed.",
    "Look at the disk if it comes again.",
)
NO_STORE = _code(
    "QHA3113",
    "Something durable was declared on a broker that keeps nothing on disk.",
    "The broker runs with `no-data-dir`. By default it refuses that; with "
    "`durable-without-store=accept` it warns, and what is durable is gone when it stops.",
    "Give it a `data-dir`, or declare without durable.",
)
LOCAL_GONE = _code(
    "QHA3114",
    "Messages that only this broker had are gone.",
    "They were on a queue of level `none` or `configuration`. The cluster has deleted that queue, "
    "or it is `none` on another broker now, another queue has its name, or another broker raised "
    "it to `all` without them. Where others raised and lowered the queue several times, they may "
    "have had some of those that are counted.",
    "Nothing brings them back. Messages that must not be lost belong on queues of level `all`.",
)
MEMORY_HIGH = _code(
    "QHA3201",
    "Senders get no credit: the broker has reached its `memory-limit`.",
    "Messages, or connections, take more memory than there is for them. The line says which.",
    "Consume messages, limit queues, or raise `memory-limit`. "
    "[Senders wait](docs/operations.md#senders-wait-and-nothing-is-accepted).",
)
MEMORY_FREE = _code(
    "QHA3202",
    "Senders get credit again: the broker is below its `memory-limit`.",
    "Messages were consumed, or moved to disk.",
    NOTHING,
)

# -- who may do what -------------------------------------------------------------------------------

LOGIN_REFUSED = _code(
    "QHA4101",
    "Somebody did not get in.",
    "A wrong user or password, a certificate that is not trusted, or a mechanism that is not "
    "offered. The line has the address.",
    "`qpid-ha user list FILE` shows the users. Many of one address: somebody tries passwords.",
)
NOT_PERMITTED = _code(
    "QHA4102",
    "A user may not do what he asked for.",
    "A rule of `acl-file`, the role of the user, or the scope of a token of `qpidha-console` "
    "forbids it; the line says which.",
    "`qpid-ha acl check` tries a rule. [Rules](docs/acl.md).",
)
QUOTA_REACHED = _code(
    "QHA4103",
    "A user has as many connections or queues as he may have.",
    "`connection-limit-per-user`, `connection-limit-per-ip`, `max-queues-per-user` or a quota of "
    "`acl-file`.",
    "Look for clients that do not close what they open, or raise the limit.",
)
ADMIN_SOCKET_DENIED = _code(
    "QHA4104",
    "Somebody who is neither root, nor the broker's own user, nor in admin-socket-group came to "
    "the admin socket.",
    "A command or script runs as another user.",
    "Run it as the broker's user, put its user into that group, or ask over AMQP with a login.",
)
CROWD_CLOSED = _code(
    "QHA4105",
    "Connections that have not logged in were closed, to make room.",
    "There are more than `max-unauthenticated`, the most of them from the address that the line "
    "names.",
    "Look what runs at that address; keep it out with a firewall if it is no client of yours.",
)

# -- connections -----------------------------------------------------------------------------------

TOO_MANY_CONNECTIONS = _code(
    "QHA6101",
    "Clients are refused: there are `max-connections`.",
    "More clients than expected, or some that do not close their connections.",
    "`qpid-ha list` shows the members, `max-connections` is the limit. Raise it where the clients "
    "are meant.",
)
DOES_NOT_READ = _code(
    "QHA6102",
    "A connection was cut off because its peer does not read.",
    "More than `max-output-buffer` bytes waited for it: it hangs, or its network does.",
    "Look at that client.",
)
NO_DESCRIPTORS = _code(
    "QHA6103",
    "Connections cannot be accepted for now.",
    "The process, or the machine, has no file descriptors or no memory left.",
    "Raise the limit of open files of the service (`LimitNOFILE` in systemd), or lower "
    "`max-connections`.",
)
NOT_PRIMARY = _code(
    "QHA6104",
    "The broker does not do that, as it is not the primary, or hands over.",
    "Clients are served, and things are changed, by the primary only.",
    "Go to the primary: `qpid-ha list` shows it. Give clients the addresses of all brokers.",
)

# -- queues and messages ---------------------------------------------------------------------------

QUEUE_FULL = _code(
    "QHA7101",
    "A message was refused: its queue is full.",
    "The queue has as many messages or bytes as its limit, an argument or a policy, allows.",
    "Consume from it, raise the limit, or choose another limit policy.",
)
MESSAGE_TOO_LARGE = _code(
    "QHA7102",
    "A message is larger than may be.",
    "It has more bytes than `max-message-size`, or than the receiver takes.",
    "Send smaller messages, or raise `max-message-size` on all brokers.",
)
LIMIT_REACHED = _code(
    "QHA7103",
    "A limit was reached; the message says which.",
    "The limits keep one client from taking all of the broker.",
    "Follow the hint of the message.",
)
QUEUE_DELETED_WHEN_FULL = _code(
    "QHA7104",
    "A queue was deleted because it was full.",
    "Its limit policy is `self-destruct`.",
    "Raise its limit, or choose another limit policy.",
)
MESSAGE_DROPPED = _code(
    "QHA7105",
    "A message that could not stay on its queue was lost.",
    "Where it should have gone, its alternate exchange or dead letters, did not take it. The line "
    "has the reason.",
    "Make room there, or bind a queue to it.",
)
DEAD_LETTERS_WAIT = _code(
    "QHA7106",
    "Messages that died stay on their queue, as there is no place for them.",
    "The queue for dead letters is full, or not there.",
    "Make room there, or declare it. [Dead letters](docs/dead-letters.md).",
)
DEPTH_ALERT = _code(
    "QHA7107",
    "A queue has come to the depth at which it is to be told, or is below again.",
    "Consumers are slower than producers, or gone.",
    "Look at its consumers: `qpid-ha queue show NAME`.",
)
NOT_THERE = _code(
    "QHA7108",
    "There is nothing of that name: no such queue, exchange, binding, policy or broker.",
    "It was deleted, was never made, or is misspelt.",
    "`qpid-ha queue list` and `qpid-ha exchange list` show what there is.",
)
EXISTS_OTHERWISE = _code(
    "QHA7109",
    "Something is there, but not as it was asked for.",
    "A queue or exchange was declared with other properties, or is used.",
    "Ask for it as it is (`qpid-ha queue show NAME`), or delete it first.",
)
POLICY_REFUSED = _code(
    "QHA7110",
    "A policy was not set.",
    "It says what cannot be done, contradicts itself, or there are too many.",
    "Follow the message; [policies](docs/policies.md) has every key.",
)

IS_REPLICA = _code(
    "QHA7111",
    "Something was refused because a queue is a replica of a queue elsewhere.",
    "Only its source changes it; it can be browsed.",
    "Use the source, or make the replica a queue of its own: `qpid-ha replica stop NAME`.",
)

# -- links to other brokers -----------------------------------------------------------------------

FEDERATION_REFUSED = _code(
    "QHA8001",
    "A link or a route was not declared.",
    "There are as many as there may be, or something is not there that it needs.",
    "Follow the message; [federation](docs/federation.md) has every option.",
)
LINK_UP = _code(
    "QHA8101", "A link to another broker is up.", "The other end let this broker in.", NOTHING
)
LINK_DOWN = _code(
    "QHA8102",
    "A link to another broker is down; it is dialled again.",
    "The other end is not running, refuses this broker, or the network is down. The line has the "
    "reason.",
    "Look at the other end, at the addresses and the login of the link: `qpid-ha link list`.",
)
LINK_TO_ITSELF = _code(
    "QHA8103",
    "A link leads back to the cluster that it begins at.",
    "One of its addresses is that of a broker of this cluster.",
    "Delete the link, or correct its addresses.",
)
ROUTE_UP = _code("QHA8201", "A route moves messages.", "Both of its ends are there.", NOTHING)
ROUTE_DOWN = _code(
    "QHA8202",
    "A route moves no messages; it is tried again.",
    "One of its ends is not there, or does not take messages. The line has the reason.",
    "Make what is missing: `qpid-ha route list` shows the reason of each route.",
)
ROUTE_REMAINS = _code(
    "QHA8203",
    "A durable route was deleted while its link was down; its queue elsewhere may remain.",
    "The other end could not be told, and keeps for the route what comes.",
    "Delete the queue that the line names at the other end: `qpid-ha queue del NAME`.",
)
ROUTE_REJECTED = _code(
    "QHA8204",
    "The other end of a route rejects messages.",
    "The line has the reason of the last one. They are dead letters of the queue that the route "
    "takes from, and gone if that has no place for dead letters.",
    "Look at the reason. A user-id of somebody else is taken of a link that logs in as the user of "
    "`ha-username` there, or whom the acl-file there lets `create link`.",
)

# -- mistakes of the broker itself -----------------------------------------------------------------

INVARIANT_BROKEN = _code(
    "QHA9001",
    "The broker stops: one of its own rules is broken.",
    "A mistake in the broker. Going on could lose messages.",
    "Report it with the logs of all brokers. Where a cluster manager watches it, another broker is "
    "promoted.",
)
INTERNAL_ERROR = _code(
    "QHA9002",
    "A connection was ended by a mistake of the broker.",
    "What that client sent brought the mistake to light; the line says where in the source.",
    "Report it with that line.",
)
