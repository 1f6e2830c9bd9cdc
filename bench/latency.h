/*
 * A latency histogram: buckets are 1/64 of their value wide, so memory and cost do not grow.
 * Include it only in the one file of a program that measures: each including file has its own counts.
 */
#ifndef LATENCY_H
#define LATENCY_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define BUCKET_BITS 6
#define BUCKETS_COUNT ((64 - BUCKET_BITS + 1) << BUCKET_BITS)

static uint64_t buckets[BUCKETS_COUNT];
static uint64_t latencies_count, latency_max_ns;

static void note_latency(uint64_t ns)
{
    size_t bucket = (size_t)ns;
    if (ns >> BUCKET_BITS) {
        int shift = 63 - __builtin_clzll(ns) - BUCKET_BITS;
        bucket = ((size_t)shift << BUCKET_BITS) + (size_t)(ns >> shift);
    }
    buckets[bucket]++;
    latencies_count++;
    if (ns > latency_max_ns)
        latency_max_ns = ns;
}

static uint64_t bucket_ns(size_t bucket)
{
    size_t shift = bucket >> BUCKET_BITS;
    if (shift <= 1)
        return bucket;
    return (uint64_t)(bucket - ((shift - 1) << BUCKET_BITS)) << (shift - 1);
}

static inline void forget_latencies(void)
{
    memset(buckets, 0, sizeof buckets);
    latencies_count = latency_max_ns = 0;
}

/* Returns a quantile: this share of all latencies is at most that long. */
static double latency_us(double share)
{
    uint64_t wanted = (uint64_t)(share * (double)latencies_count), seen = 0;
    for (size_t bucket = 0; bucket < BUCKETS_COUNT; bucket++) {
        seen += buckets[bucket];
        if (seen > wanted)
            return (double)bucket_ns(bucket) / 1000.0;
    }
    return (double)latency_max_ns / 1000.0;
}

#endif
