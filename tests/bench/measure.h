/* What the generators have in common: time, memory, and how they print percentiles and their own use of CPU. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void *room_for(size_t count, size_t size) {
    void *room = calloc(count ? count : 1, size);
    if (!room) {
        fprintf(stderr, "bench: out of memory\n");
        exit(2);
    }
    return room;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Print seconds as milliseconds, or null where there are none. */
static void print_percentiles(const char *name, float *values, long count) {
    if (!count) {
        printf(",\"%s_p50_ms\":null,\"%s_p99_ms\":null,\"%s_p999_ms\":null,\"%s_max_ms\":null", name, name, name, name);
        return;
    }
    qsort(values, (size_t)count, sizeof *values, by_value);
    printf(",\"%s_p50_ms\":%.3f,\"%s_p99_ms\":%.3f", name, values[count / 2] * 1e3, name, values[count * 99 / 100] * 1e3);
    printf(",\"%s_p999_ms\":%.3f,\"%s_max_ms\":%.3f", name, values[count * 999 / 1000] * 1e3, name, values[count - 1] * 1e3);
}

/* Seconds of CPU that this process has used. */
static double cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
}

#endif
