/* rabbitbench: the AMQP 0-9-1 twin of amqpbench, for RabbitMQ on its native protocol.
 *
 * One producer thread with publisher confirms (at most a window of them open) and, unless -C, one consumer thread that
 * acknowledges in groups. Declares its queue, durable, of the type asked for, and deletes it at the end.
 * Prints one JSON object on one line, with the fields of amqpbench; exit code 0 done, 1 cut off, 2 usage or no connection.
 *
 * Build: cc -O2 -o rabbitbench rabbitbench.c -lrabbitmq -lpthread
 */
#include <amqp.h>
#include <amqp_tcp_socket.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CHANNEL = 1, FRAME_MAX = 131072, PREFETCH = 1000, PATIENCE_SECONDS = 20, STAMP = sizeof(double) };

static struct {
    long messages;
    int window, size, group, port;
    bool persistent, consumes;
    const char *host, *queue, *type;
} ask = {.messages = 100000, .window = 500, .size = 100, .group = 10, .consumes = true, .queue = "bench", .type = "classic"};

static struct {
    long acknowledged, received;
    double first_send, last_ack, first_receive, last_receive, *sent_at;
    float *ack, *arrival;
} seen;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void check(amqp_rpc_reply_t reply, const char *what) {
    if (reply.reply_type == AMQP_RESPONSE_NORMAL) return;
    fprintf(stderr, "rabbitbench: %s refused\n", what);
    exit(2);
}

static amqp_connection_state_t dial(void) {
    amqp_connection_state_t connection = amqp_new_connection();
    if (amqp_socket_open(amqp_tcp_socket_new(connection), ask.host, ask.port)) {
        fprintf(stderr, "rabbitbench: %s:%d cannot be reached\n", ask.host, ask.port);
        exit(2);
    }
    check(amqp_login(connection, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest"), "login");
    amqp_channel_open(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "channel");
    return connection;
}

/* Note that all up to `tag` (or only `tag`) are confirmed; the new number of confirmed in order. */
static void confirmed(amqp_basic_ack_t *ack) {
    double at = now();
    if (ack->multiple) {
        for (uint64_t tag = (uint64_t)seen.acknowledged; tag < ack->delivery_tag; tag++)
            if (!seen.ack[tag]) seen.ack[tag] = (float)(at - seen.sent_at[tag]);
        if ((long)ack->delivery_tag > seen.acknowledged) seen.acknowledged = (long)ack->delivery_tag;
    } else {
        seen.ack[ack->delivery_tag - 1] = (float)(at - seen.sent_at[ack->delivery_tag - 1]);
        /* Confirms of single messages may come out of order: advance over what is known without a gap. */
        while (seen.acknowledged < ask.messages && seen.ack[seen.acknowledged]) seen.acknowledged++;
    }
    seen.last_ack = at;
}

static void *produce(void *nothing) {
    amqp_connection_state_t connection = dial();
    amqp_confirm_select(connection, CHANNEL);
    check(amqp_get_rpc_reply(connection), "confirms");
    char *content = calloc(1, (size_t)ask.size);
    amqp_bytes_t body = {(size_t)ask.size, content};
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = ask.persistent ? 2 : 1};
    long sent = 0;
    seen.first_send = now();
    while (seen.acknowledged < ask.messages) {
        while (sent < ask.messages && sent - seen.acknowledged < ask.window) {
            seen.sent_at[sent] = now();
            memcpy(content, &seen.sent_at[sent], STAMP);
            amqp_basic_publish(connection, CHANNEL, amqp_empty_bytes, amqp_cstring_bytes(ask.queue), 0, 0, &properties, body);
            sent++;
            if (amqp_data_in_buffer(connection)) break;
        }
        amqp_frame_t frame;
        struct timeval patience = {PATIENCE_SECONDS, 0};
        amqp_maybe_release_buffers(connection);
        if (amqp_simple_wait_frame_noblock(connection, &frame, &patience) != AMQP_STATUS_OK) break;
        if (frame.frame_type != AMQP_FRAME_METHOD) continue;
        if (frame.payload.method.id != AMQP_BASIC_ACK_METHOD) break;
        confirmed(frame.payload.method.decoded);
    }
    free(content);
    return nothing;
}

static void *consume(void *connected) {
    amqp_connection_state_t connection = connected;
    while (seen.received < ask.messages) {
        amqp_envelope_t envelope;
        struct timeval patience = {PATIENCE_SECONDS, 0};
        amqp_maybe_release_buffers(connection);
        if (amqp_consume_message(connection, &envelope, &patience, 0).reply_type != AMQP_RESPONSE_NORMAL) break;
        double at = now(), sent;
        memcpy(&sent, envelope.message.body.bytes, STAMP);
        seen.arrival[seen.received] = (float)(at - sent);
        if (!seen.first_receive) seen.first_receive = at;
        seen.last_receive = at;
        seen.received++;
        if (seen.received % ask.group == 0 || seen.received == ask.messages) amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 1);
        amqp_destroy_envelope(&envelope);
    }
    return NULL;
}

static amqp_connection_state_t subscribe(void) {
    amqp_connection_state_t connection = dial();
    amqp_basic_qos(connection, CHANNEL, 0, PREFETCH, 0);
    amqp_basic_consume(connection, CHANNEL, amqp_cstring_bytes(ask.queue), amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    check(amqp_get_rpc_reply(connection), "consume");
    return connection;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void print_percentiles(const char *name, float *values, long count) {
    if (!count) {
        printf(",\"%s_p50_ms\":null,\"%s_p99_ms\":null", name, name);
        return;
    }
    qsort(values, (size_t)count, sizeof *values, by_value);
    printf(",\"%s_p50_ms\":%.3f,\"%s_p99_ms\":%.3f", name, values[count / 2] * 1e3, name, values[count * 99 / 100] * 1e3);
}

static void print_result(bool done) {
    double sending = seen.last_ack - seen.first_send, receiving = seen.last_receive - seen.first_receive;
    double whole = (seen.last_receive > seen.last_ack ? seen.last_receive : seen.last_ack) - seen.first_send;
    printf("{\"messages\":%ld,\"size\":%d,\"producers\":1,\"consumers\":%d,\"window\":%d", ask.messages, ask.size, ask.consumes, ask.window);
    printf(",\"queue_type\":\"%s\",\"acked\":%ld,\"rejected\":0,\"received\":%ld,\"timed_out\":%s", ask.type, seen.acknowledged,
           seen.received, done ? "false" : "true");
    printf(",\"send_rate\":%.0f", sending > 0 ? seen.acknowledged / sending : 0);
    printf(",\"recv_rate\":%.0f", receiving > 0 ? seen.received / receiving : 0);
    printf(",\"overall_rate\":%.0f", ask.consumes && whole > 0 ? seen.received / whole : 0);
    print_percentiles("ack", seen.ack, seen.acknowledged);
    print_percentiles("e2e", seen.arrival, seen.received);
    printf("}\n");
}

static void usage(void) {
    fprintf(stderr, "usage: rabbitbench [-n messages] [-w window] [-s size] [-a acknowledge in groups of] [-q queue]\n"
                    "                   [-t classic|quorum] [-p persistent] [-C no consumer] host:port\n");
    exit(2);
}

static void parse(int argc, char **argv) {
    int option;
    while ((option = getopt(argc, argv, "n:w:s:a:q:t:pC")) != -1) switch (option) {
        case 'n': ask.messages = atol(optarg); break;
        case 'w': ask.window = atoi(optarg); break;
        case 's': ask.size = atoi(optarg); break;
        case 'a': ask.group = atoi(optarg); break;
        case 'q': ask.queue = optarg; break;
        case 't': ask.type = optarg; break;
        case 'p': ask.persistent = true; break;
        case 'C': ask.consumes = false; break;
        default: usage();
        }
    if (optind + 1 != argc || !strrchr(argv[optind], ':') || ask.messages < 1 || ask.group < 1) usage();
    if (ask.size < STAMP) ask.size = STAMP;
    char *colon = strrchr(argv[optind], ':');
    *colon = 0;
    ask.host = argv[optind];
    ask.port = atoi(colon + 1);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    seen.sent_at = calloc((size_t)ask.messages, sizeof(double));
    seen.ack = calloc((size_t)ask.messages, sizeof(float));
    seen.arrival = calloc((size_t)ask.messages, sizeof(float));
    amqp_connection_state_t connection = dial();
    amqp_table_entry_t type = {.key = amqp_cstring_bytes("x-queue-type"),
                               .value = {.kind = AMQP_FIELD_KIND_UTF8, .value.bytes = amqp_cstring_bytes(ask.type)}};
    amqp_table_t arguments = {1, &type};
    amqp_queue_declare(connection, CHANNEL, amqp_cstring_bytes(ask.queue), 0, 1, 0, 0, arguments);
    check(amqp_get_rpc_reply(connection), "declare");
    pthread_t producer, consumer;
    if (ask.consumes) pthread_create(&consumer, NULL, consume, subscribe());
    pthread_create(&producer, NULL, produce, NULL);
    pthread_join(producer, NULL);
    if (ask.consumes) pthread_join(consumer, NULL);
    bool done = seen.acknowledged >= ask.messages && (!ask.consumes || seen.received >= ask.messages);
    print_result(done);
    amqp_queue_delete(connection, CHANNEL, amqp_cstring_bytes(ask.queue), 0, 0);
    return done ? 0 : 1;
}
