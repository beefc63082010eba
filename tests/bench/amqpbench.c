/* amqpbench: a small and fast AMQP 1.0 load generator on proton's connection driver.
 *
 * Producers and consumers share one queue, or have one each pair with -Q. Every message is sent unsettled and a
 * producer keeps at most a window of them in flight; the time from send to the broker's outcome is recorded, and so is
 * the time from send to arrival, by a stamp in the last bytes of the body. Consumers accept each message.
 * With -g each message has what queues of several kinds read: a priority, 0 to 9 in turn, a group-id, one of so many in
 * turn, and the application property "key", its number; else it is a body and nothing more. -l gives it a time to live,
 * -f gives consumers a selector.
 * One thread, one poll loop, so that the generator stays cheap beside the brokers it measures.
 * Prints one JSON object on one line; exit code 0 done, 1 timed out or cut off, 2 usage or no connection.
 *
 * Besides a count of messages (-n) a run can be boxed in time (-T): nothing is sent after so many seconds, and it ends
 * when all that was sent is settled and received (without producers: when the time is over). With a rate (-r, messages a
 * second of all producers together) the clock of a message starts when it was due, not when it could be sent, so that
 * a stall of the broker counts for every message that it delays. With -m every connection has a link to each of so many
 * queues, ADDRESS0, ADDRESS1, ..., used in turn; with -Q too pair i has its own, ADDRESSi.0, ADDRESSi.1, ... With -j each consumer has so many links to its queue. With -F consumer
 * i receives every message from RECEIVE-ADDRESSi (-R). SIGTERM ends a run as the end of its time does.
 *
 * For who measures a broker meanwhile: with -W so many outcomes begin what counts, and a line is printed then, with the
 * messages that came and went so far; the JSON object is printed when all is done, before anything is closed. With -B
 * a consumer, which is the only one, takes as many messages as the sender has outcomes, and its credit more: a backlog stays.
 *
 * Build: cc -O2 -o amqpbench amqpbench.c -lqpid-proton
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <proton/condition.h>
#include <proton/connection.h>
#include <proton/codec.h>
#include <proton/connection_driver.h>
#include <proton/delivery.h>
#include <proton/link.h>
#include <proton/sasl.h>
#include <proton/session.h>
#include <proton/terminus.h>
#include <proton/transport.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"

enum { STAMP = sizeof(double), DIGITS = 8, FRAME_MAX = 65536, SESSION_CAPACITY = 1 << 26, ARRIVAL_MAX = 1 << 22, SAMPLES_MAX = 50000000 };

/* One connection with its links, mostly one: a producer's or a consumer's. */
typedef struct {
    pn_connection_driver_t driver;
    int socket;
    bool produces, closed;
    pn_link_t **links;
    int place;
    long quota, sent, settled;
    double origin; /* of its clock: when it could send first */
    double *sent_at; /* by delivery number, of a producer */
    char address[256];
} peer_t;

/* What was asked for. */
static struct {
    long messages, warm;
    int producers, consumers, window, size, credit, links, alike, groups;
    uint32_t ttl; /* ms; 0 for none */
    bool durable, queue_per_pair, presettled, fan_out, balanced;
    double timeout, rate, seconds;
    const char *address, *receive_address, *user, *password, *selector;
} ask = {.messages = 100000, .producers = 1, .consumers = 1, .window = 500, .size = 100, .credit = 1000, .links = 1, .alike = 1, .timeout = 120, .address = "bench"};

/* What was seen. */
static struct {
    long sent, acknowledged, refused, received, granted, ack_count, arrival_count, samples, links, attached;
    double started, warm, first_send, last_ack, first_receive, last_receive;
    float *ack, *arrival;
} seen;

static char *message, *arrived;
static size_t message_size, stamp_at;
static char *priority_at, *group_at, *key_at; /* with -g: what is another in each message */

static void append(const void *bytes, size_t count) {
    memcpy(message + message_size, bytes, count);
    message_size += count;
}

/* Append a section of few bytes: its code, and what is between its size and its end. */
static void append_section(unsigned char code, unsigned char constructor, const void *bytes, size_t count) {
    const unsigned char start[] = {0x00, 0x53, code, constructor, (unsigned char)count};
    append(start, sizeof start);
    append(bytes, count);
}

/* Encode the message once (AMQP 1.0 section 3.2): a header if there is something to say, what -g asks for, and a data section. */
static void encode_message(void) {
    /* How many fields: durable, priority, time to live. Ten fields of nothing, and a group-id. */
    unsigned char header[] = {0x03, ask.durable ? 0x41 : 0x40, 0x50, 0x04, 0x70, 0, 0, 0, 0};
    unsigned char properties[13 + DIGITS], key[] = "\x02\xa1\x03" "key" "\xa1\x08" "00000000";
    unsigned char data[] = {0x00, 0x53, 0x75, 0xb0, 0, 0, 0, 0};
    for (int i = 0; i < 4; i++) data[4 + i] = (unsigned char)(ask.size >> (24 - 8 * i));
    for (int i = 0; i < 4; i++) header[5 + i] = (unsigned char)(ask.ttl >> (24 - 8 * i));
    message = room_for((size_t)ask.size + 128, 1);
    header[0] = ask.ttl ? 3 : ask.groups ? 2 : 1;
    if (ask.durable || ask.groups || ask.ttl) append_section(0x70, 0xc0, header, ask.ttl ? 9 : ask.groups ? 4 : 2);
    if (ask.groups) {
        priority_at = message + 8;
        memset(properties, 0x40, sizeof properties);
        properties[0] = 11;
        properties[11] = 0xa1;
        properties[12] = DIGITS;
        append_section(0x73, 0xc0, properties, sizeof properties);
        group_at = message + message_size - DIGITS;
        append_section(0x74, 0xc1, key, sizeof key - 1);
        key_at = message + message_size - DIGITS;
    }
    append(data, sizeof data);
    memset(message + message_size, 'x', (size_t)ask.size);
    message_size += (size_t)ask.size;
    stamp_at = message_size - STAMP;
}

static void write_digits(char *place, uint64_t number) {
    for (int i = DIGITS; i--; number /= 10) place[i] = (char)('0' + number % 10);
}

/* When message `number` of this producer is due; without a rate it always is. */
static double due_at(const peer_t *peer, long number) {
    return peer->origin + (double)(number * ask.producers + peer->place) / ask.rate;
}

/* When the time of a run that is boxed in time begins: with the first message, also for who only receives, or when what
 * counts begins; 0 before that.
 */
static double time_begins(void) {
    if (ask.warm) return seen.warm;
    return ask.producers ? seen.first_send : seen.first_receive;
}

static volatile sig_atomic_t told_to_end;

static void end_soon(int number) { told_to_end = number; }

static bool time_is_over(double at) {
    return told_to_end || (ask.seconds && time_begins() && at - time_begins() >= ask.seconds);
}

/* Send while there is credit, quota, time and room in the window, when all links are there. */
static void send_more(peer_t *peer) {
    if (seen.attached < seen.links) return;
    while (peer->sent < peer->quota && (ask.presettled || peer->sent - peer->settled < ask.window)) {
        pn_link_t *link = peer->links[peer->sent % ask.links];
        if (!link || pn_link_credit(link) <= 0) return;
        double at = now();
        if (!peer->origin) peer->origin = at;
        if (time_is_over(at)) {
            peer->quota = peer->sent;
            return;
        }
        if (ask.rate) {
            double due = due_at(peer, peer->sent);
            if (due > at) return;
            at = due;
        }
        uint64_t number = (uint64_t)peer->sent++;
        seen.sent++;
        if (!seen.first_send) seen.first_send = at;
        pn_delivery_t *delivery = pn_delivery(link, pn_dtag((const char *)&number, sizeof number));
        memcpy(message + stamp_at, &at, STAMP);
        if (ask.groups) {
            *priority_at = (char)(number % 10);
            write_digits(group_at, number % (uint64_t)ask.groups);
            write_digits(key_at, number);
        }
        pn_link_send(link, message, message_size);
        if (ask.presettled) {
            pn_delivery_settle(delivery);
            peer->settled++;
            seen.acknowledged++;
            seen.last_ack = at;
        } else {
            peer->sent_at[number] = at;
            pn_delivery_set_context(delivery, (void *)(uintptr_t)number);
            pn_link_advance(link);
        }
    }
}

/* With -W, tell that what counts begins. */
static void tell_when_warm(void) {
    if (!ask.warm || seen.warm || seen.acknowledged < ask.warm) return;
    seen.warm = now();
    printf("{\"acked\":%ld,\"received\":%ld}\n", seen.acknowledged, seen.received);
    fflush(stdout);
}

/* Give a consumer credit, if it has little: with -B for no more messages than have come by now. */
static void give_credit(pn_link_t *link) {
    long credit = pn_link_credit(link), more = ask.credit - credit;
    if (credit > ask.credit / 2) return;
    if (ask.balanced) {
        long due = seen.acknowledged - seen.granted;
        if (due < more) more = due;
        if (more <= ask.credit / 4) return;
        seen.granted += more;
    }
    pn_link_flow(link, (int)more);
}

static void on_outcome(peer_t *peer, pn_delivery_t *delivery) {
    if (!pn_delivery_updated(delivery)) return;
    double at = now();
    if (pn_delivery_remote_state(delivery) != PN_ACCEPTED) seen.refused++;
    if (seen.ack_count < seen.samples)
        seen.ack[seen.ack_count++] = (float)(at - peer->sent_at[(uintptr_t)pn_delivery_get_context(delivery)]);
    pn_delivery_settle(delivery);
    peer->settled++;
    seen.acknowledged++;
    seen.last_ack = at;
    tell_when_warm();
    send_more(peer);
}

static void on_message(pn_delivery_t *delivery) {
    if (!pn_delivery_readable(delivery) || pn_delivery_partial(delivery)) return;
    pn_link_t *link = pn_delivery_link(delivery);
    size_t pending = pn_delivery_pending(delivery);
    ssize_t got = pn_link_recv(link, arrived, pending < ARRIVAL_MAX ? pending : ARRIVAL_MAX);
    double at = now();
    if (got >= STAMP && seen.arrival_count < seen.samples) { /* the stamp is last, whatever sections the broker put first */
        double sent;
        memcpy(&sent, arrived + got - STAMP, STAMP);
        seen.arrival[seen.arrival_count++] = (float)(at - sent);
    }
    pn_delivery_update(delivery, PN_ACCEPTED);
    pn_delivery_settle(delivery);
    seen.received++;
    if (!seen.first_receive) seen.first_receive = at;
    seen.last_receive = at;
    give_credit(link);
}

/* The filter of a source that every AMQP 1.0 client knows, the JMS selector. */
static void select_by(pn_data_t *filter, const char *selector) {
    const char *key = "selector", *descriptor = "apache.org:selector-filter:string";
    pn_data_put_map(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, pn_bytes(strlen(key), key));
    pn_data_put_described(filter);
    pn_data_enter(filter);
    pn_data_put_symbol(filter, pn_bytes(strlen(descriptor), descriptor));
    pn_data_put_string(filter, pn_bytes(strlen(selector), selector));
    pn_data_exit(filter);
    pn_data_exit(filter);
}

static int link_count(const peer_t *peer) { return peer->produces ? ask.links : ask.links * ask.alike; }

static void on_start(peer_t *peer, pn_connection_t *connection) {
    char name[64];
    snprintf(name, sizeof name, "amqpbench-%d-%d", getpid(), peer->socket);
    pn_connection_set_container(connection, name);
    pn_connection_set_hostname(connection, "localhost");
    if (ask.user) {
        pn_connection_set_user(connection, ask.user);
        pn_connection_set_password(connection, ask.password);
    }
    pn_connection_open(connection);
    pn_session_t *session = pn_session(connection);
    pn_session_set_incoming_capacity(session, SESSION_CAPACITY);
    pn_session_open(session);
    for (int i = 0; i < link_count(peer); i++) {
        char link_name[96], address[300];
        snprintf(link_name, sizeof link_name, "%s-%d", name, i);
        if (ask.links > 1)
            snprintf(address, sizeof address, "%s%d", peer->address, i % ask.links);
        else
            snprintf(address, sizeof address, "%s", peer->address);
        pn_link_t *link = peer->produces ? pn_sender(session, link_name) : pn_receiver(session, link_name);
        pn_terminus_set_address(peer->produces ? pn_link_target(link) : pn_link_source(link), address);
        if (!peer->produces && ask.selector) select_by(pn_terminus_filter(pn_link_source(link)), ask.selector);
        if (peer->produces && ask.presettled) pn_link_set_snd_settle_mode(link, PN_SND_SETTLED);
        pn_link_open(link);
        if (!peer->produces) pn_link_flow(link, ask.credit);
        peer->links[i] = link;
    }
}

static void on_close(peer_t *peer, pn_event_t *event) {
    pn_condition_t *reason = NULL;
    switch (pn_event_type(event)) {
    case PN_LINK_REMOTE_CLOSE: reason = pn_link_remote_condition(pn_event_link(event)); break;
    case PN_SESSION_REMOTE_CLOSE: reason = pn_session_remote_condition(pn_event_session(event)); break;
    case PN_CONNECTION_REMOTE_CLOSE: reason = pn_connection_remote_condition(pn_event_connection(event)); break;
    default: reason = pn_transport_condition(pn_event_transport(event)); break;
    }
    if (reason && pn_condition_is_set(reason)) {
        const char *text = pn_condition_get_description(reason);
        fprintf(stderr, "amqpbench: %s: %s\n", pn_condition_get_name(reason), text ? text : "");
    }
    peer->closed = true;
}

static void handle(peer_t *peer, pn_event_t *event) {
    switch (pn_event_type(event)) {
    case PN_CONNECTION_INIT: on_start(peer, pn_event_connection(event)); break;
    case PN_LINK_REMOTE_OPEN: seen.attached++; break;
    case PN_LINK_FLOW:
        if (peer->produces) send_more(peer);
        break;
    case PN_DELIVERY:
        if (peer->produces)
            on_outcome(peer, pn_event_delivery(event));
        else
            on_message(pn_event_delivery(event));
        break;
    case PN_LINK_REMOTE_CLOSE:
    case PN_SESSION_REMOTE_CLOSE:
    case PN_CONNECTION_REMOTE_CLOSE:
    case PN_TRANSPORT_ERROR: on_close(peer, event); break;
    default: break;
    }
}

static int dial(const char *host, const char *port) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    if (getaddrinfo(host, port, &hints, &found)) {
        fprintf(stderr, "amqpbench: %s:%s cannot be resolved\n", host, port);
        exit(2);
    }
    int connected = socket(found->ai_family, SOCK_STREAM, 0), on = 1;
    if (connected < 0 || connect(connected, found->ai_addr, found->ai_addrlen)) {
        fprintf(stderr, "amqpbench: %s:%s: %s\n", host, port, strerror(errno));
        exit(2);
    }
    setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(connected, F_SETFL, O_NONBLOCK);
    freeaddrinfo(found);
    return connected;
}

/* Open peer `index`; the consumers come first, so that they are there when the first message is. */
static void open_peer(peer_t *peer, int index, const char *host, const char *port) {
    peer->produces = index >= ask.consumers;
    int place = peer->place = peer->produces ? index - ask.consumers : index;
    const char *address = !peer->produces && ask.receive_address ? ask.receive_address : ask.address;
    peer->socket = dial(host, port);
    peer->links = room_for((size_t)link_count(peer), sizeof *peer->links);
    seen.links += link_count(peer);
    if (ask.queue_per_pair && ask.links > 1)
        snprintf(peer->address, sizeof peer->address, "%s%d.", address, place);
    else if (ask.queue_per_pair || (ask.fan_out && !peer->produces))
        snprintf(peer->address, sizeof peer->address, "%s%d", address, place);
    else
        snprintf(peer->address, sizeof peer->address, "%s", address);
    if (peer->produces) {
        peer->quota = ask.messages / ask.producers + (place < ask.messages % ask.producers);
        peer->sent_at = room_for((size_t)peer->quota, sizeof(double));
    }
    pn_connection_driver_init(&peer->driver, NULL, NULL);
    pn_sasl_t *sasl = pn_sasl(peer->driver.transport);
    pn_sasl_allowed_mechs(sasl, ask.user ? "PLAIN" : "ANONYMOUS");
    if (ask.user) pn_sasl_set_allow_insecure_mechs(sasl, true);
    pn_transport_set_max_frame(peer->driver.transport, FRAME_MAX);
}

static void fail(peer_t *peer) {
    pn_connection_driver_close(&peer->driver);
    peer->closed = true;
}

static bool write_some(peer_t *peer) {
    pn_bytes_t bytes = pn_connection_driver_write_buffer(&peer->driver);
    if (peer->closed || !bytes.size) return false;
    ssize_t wrote = send(peer->socket, bytes.start, bytes.size, MSG_NOSIGNAL);
    if (wrote > 0) pn_connection_driver_write_done(&peer->driver, (size_t)wrote);
    if (wrote < 0 && errno != EAGAIN) fail(peer);
    return wrote > 0;
}

static void read_some(peer_t *peer) {
    pn_rwbytes_t room = pn_connection_driver_read_buffer(&peer->driver);
    if (!room.size) return;
    ssize_t got = recv(peer->socket, room.start, room.size, 0);
    if (got > 0)
        pn_connection_driver_read_done(&peer->driver, (size_t)got);
    else if (got == 0)
        pn_connection_driver_read_close(&peer->driver);
    else if (errno != EAGAIN)
        fail(peer);
}

/* Handle what has happened on one connection; say what it waits for. */
static short turn(peer_t *peer) {
    pn_event_t *event;
    while ((event = pn_connection_driver_next_event(&peer->driver))) handle(peer, event);
    if (peer->produces && !peer->closed && peer->links[0]) send_more(peer); /* what has become due, or an end by time */
    if (ask.balanced && !peer->produces && !peer->closed && peer->links[0]) give_credit(peer->links[0]);
    if (pn_connection_driver_finished(&peer->driver)) peer->closed = true;
    short wants = 0;
    if (pn_connection_driver_read_buffer(&peer->driver).size) wants |= POLLIN;
    if (pn_connection_driver_write_buffer(&peer->driver).size) wants |= POLLOUT;
    return wants;
}

/* Let the last outcomes reach the broker and part in good order, without waiting for its answer. */
static void part(peer_t *peer) {
    if (peer->closed) return;
    pn_connection_close(peer->driver.connection);
    turn(peer);
    while (write_some(peer)) turn(peer);
    close(peer->socket);
}

/* How long to poll, in seconds: until the next message is due, the time is over, or a tenth of a second. */
static double patience(const peer_t *peers, int count) {
    double at = now(), until = at + 0.1;
    double end = time_begins() + ask.seconds;
    if (ask.seconds && at < end && end < until) until = end;
    if (ask.rate)
        for (int i = ask.consumers; i < count; i++) {
            const peer_t *peer = &peers[i];
            if (!peer->origin || peer->closed || peer->sent >= peer->quota || peer->sent - peer->settled >= ask.window) continue;
            if (pn_link_credit(peer->links[peer->sent % ask.links]) <= 0) continue;
            double due = due_at(peer, peer->sent);
            if (due < until) until = due;
        }
    return until > at ? until - at : 0;
}

/* Whether there is nothing left to do. */
static bool all_done(const peer_t *peers, int count) {
    if (!ask.producers) return seen.received >= ask.messages || time_is_over(now());
    for (int i = ask.consumers; i < count; i++)
        if (peers[i].sent < peers[i].quota || peers[i].settled < peers[i].sent) return false;
    return !ask.consumers || seen.received >= seen.sent * (ask.fan_out ? ask.consumers : 1);
}

/* Run until all is sent and received, or `timeout` is over; true if it was done. */
static bool run(peer_t *peers, int count) {
    struct pollfd *polled = room_for((size_t)count, sizeof *polled);
    for (;;) {
        int open = 0;
        for (int i = 0; i < count; i++) {
            polled[i].events = turn(&peers[i]);
            polled[i].revents = 0;
            polled[i].fd = peers[i].closed ? -1 : peers[i].socket;
            open += !peers[i].closed;
        }
        if (all_done(peers, count)) return true;
        if (!open || now() - seen.started > ask.timeout) return false;
        bool progress = false; /* write at once and poll only for what was left */
        for (int i = 0; i < count; i++) progress |= write_some(&peers[i]);
        double wait = progress ? 0 : patience(peers, count);
        struct timespec left = {.tv_sec = 0, .tv_nsec = (long)(wait * 1e9)};
        if (ppoll(polled, (nfds_t)count, &left, NULL) < 0 && errno != EINTR) return false;
        for (int i = 0; i < count; i++)
            if (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) read_some(&peers[i]);
    }
}

static void print_result(bool done) {
    double sending = seen.last_ack - seen.first_send, receiving = seen.last_receive - seen.first_receive;
    double whole = (seen.last_receive > seen.last_ack ? seen.last_receive : seen.last_ack) - seen.first_send;
    double cpu = cpu_seconds();
    printf("{\"messages\":%ld,\"size\":%d,\"producers\":%d,\"consumers\":%d,\"window\":%d", ask.producers ? seen.sent : seen.received,
           ask.size, ask.producers, ask.consumers, ask.window);
    printf(",\"acked\":%ld,\"rejected\":%ld,\"received\":%ld,\"timed_out\":%s", seen.acknowledged, seen.refused, seen.received,
           done ? "false" : "true");
    printf(",\"send_rate\":%.0f", sending > 0 ? seen.acknowledged / sending : 0);
    printf(",\"recv_rate\":%.0f", receiving > 0 ? seen.received / receiving : 0);
    printf(",\"overall_rate\":%.0f", ask.producers && ask.consumers && whole > 0 ? seen.received / whole : 0);
    printf(",\"seconds\":%.3f,\"generator_cpu_seconds\":%.3f", ask.producers ? whole : receiving, cpu);
    print_percentiles("ack", seen.ack, seen.ack_count);
    print_percentiles("e2e", seen.arrival, seen.arrival_count);
    printf("}\n");
    fflush(stdout);
}

static void usage(void) {
    fprintf(stderr, "usage: amqpbench [-n messages] [-p producers] [-c consumers] [-w window] [-s size] [-a address] [-k credit]\n"
                    "                 [-t seconds] [-u user -x password] [-d durable] [-P presettled] [-Q a queue per pair]\n"
                    "                 [-r messages a second] [-T seconds to send] [-m queues on each connection]\n"
                    "                 [-F fan-out] [-R receive address] [-j links of each consumer to its queue]\n"
                    "                 [-g groups] [-l time to live in ms] [-f selector] [-W outcomes] [-B balanced] host:port\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "n:p:c:w:s:a:k:t:u:x:r:T:m:j:R:g:l:f:W:dPQFB")) != -1) switch (option) {
        case 'n': ask.messages = atol(optarg); break;
        case 'p': ask.producers = atoi(optarg); break;
        case 'c': ask.consumers = atoi(optarg); break;
        case 'w': ask.window = atoi(optarg); break;
        case 's': ask.size = atoi(optarg); break;
        case 'a': ask.address = optarg; break;
        case 'k': ask.credit = atoi(optarg); break;
        case 't': ask.timeout = atof(optarg); break;
        case 'u': ask.user = optarg; break;
        case 'x': ask.password = optarg; break;
        case 'r': ask.rate = atof(optarg); break;
        case 'T': ask.seconds = atof(optarg); break;
        case 'm': ask.links = atoi(optarg); break;
        case 'j': ask.alike = atoi(optarg); break;
        case 'R': ask.receive_address = optarg; break;
        case 'g': ask.groups = atoi(optarg); break;
        case 'l': ask.ttl = (uint32_t)atol(optarg); break;
        case 'f': ask.selector = optarg; break;
        case 'W': ask.warm = atol(optarg); break;
        case 'F': ask.fan_out = true; break;
        case 'B': ask.balanced = true; break;
        case 'd': ask.durable = true; break;
        case 'P': ask.presettled = true; break;
        case 'Q': ask.queue_per_pair = true; break;
        default: usage();
        }
    if (optind + 1 != argc || !strrchr(argv[optind], ':') || ask.messages < 1 || ask.producers < 0 || ask.consumers < 0) usage();
    if (ask.producers + ask.consumers == 0 || (ask.user && !ask.password) || ask.links < 1 || ask.alike < 1 || ask.groups < 0) usage();
    if (ask.size < STAMP) ask.size = STAMP;
}

int main(int argc, char **argv) {
    parse(argc, argv);
    signal(SIGTERM, end_soon);
    char *host = argv[optind], *colon = strrchr(host, ':');
    *colon = 0;
    encode_message();
    arrived = room_for(ARRIVAL_MAX, 1);
    seen.samples = ask.messages * (ask.fan_out && ask.consumers ? ask.consumers : 1);
    if (seen.samples > SAMPLES_MAX) seen.samples = SAMPLES_MAX;
    seen.ack = room_for((size_t)seen.samples, sizeof(float));
    seen.arrival = room_for((size_t)seen.samples, sizeof(float));
    prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0); /* so that what is due is sent then */
    int count = ask.producers + ask.consumers;
    peer_t *peers = room_for((size_t)count, sizeof *peers);
    for (int i = 0; i < count; i++) open_peer(&peers[i], i, host, colon + 1);
    seen.started = now();
    bool done = run(peers, count);
    print_result(done);
    for (int i = 0; i < count; i++) part(&peers[i]);
    return done ? 0 : 1;
}
