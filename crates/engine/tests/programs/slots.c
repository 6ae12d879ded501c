/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Runs several threads on the slots of one flow table, as CPUs are in the kernel. Prints what is wrong and exits with 1
 * if a slot or a state is lost, or belongs to two flows or slots.
 *     slots pool THREADS STEPS     allocate and free slots
 *     slots table THREADS STEPS    admit flows, and free idle ones
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lets other threads run between a swap and what it depends on, where they would seldom come by themselves. */
static void let_others(void)
{
	static __thread unsigned int turn;

	if (!(++turn % 7))
		sched_yield();
}
#define __sync_val_compare_and_swap(where, old, new) (let_others(), __sync_val_compare_and_swap(where, old, new))

#define DWELL_STORES_IN_ORDER 0 /* as on any machine */
#include "response/slot_hooks.h"

#define SLOTS 64U
#define BUCKETS 32U
#define STATES 24U
#define HELD 2 /* slots that a thread of "pool" holds at once */

static struct dwell_slots slots;
static struct dwell_slot_bucket buckets[BUCKETS];
static struct dwell_wide_slot slot[SLOTS];
static struct dwell_alias alias[1];
static __u32 owners[SLOTS];
static __u64 now_ns = 1000000000;
static __u32 steps;
static __u32 wrong;

static void fail(const char *what, __u32 slot_index)
{
	if (!__sync_fetch_and_add(&wrong, 1))
		printf("slot %u %s\n", slot_index, what);
}

static __u32 next_random(__u64 *random)
{
	*random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
	return *random >> 33;
}

static void free_slot(struct dwell_table *table, __u32 slot_index)
{
	__sync_fetch_and_sub(&owners[slot_index], 1);
	dwell_slot_free(table, slot_index);
}

static void *allocate_and_free(void *number)
{
	struct dwell_slot_bucket own = {0};
	struct dwell_table table = {.embedder = &slots};
	__u32 held[HELD], count = 0;
	__u64 random = (__u64)number;

	for (__u32 step = 0; step < steps && !wrong; step++) {
		__u32 slot_index;

		if (count == HELD || (count && next_random(&random) & 1)) {
			free_slot(&table, held[--count]);
			continue;
		}
		slot_index = dwell_slot_allocate(&table, &own.bucket, 0);
		if (slot_index == DWELL_NO_SLOT)
			continue;
		if (slot_index >= SLOTS || __sync_fetch_and_add(&owners[slot_index], 1)) {
			fail("was allocated twice", slot_index);
			break;
		}
		/* a flow overwrites the link to the next free slot */
		slot[slot_index].slot.lb.vip = next_random(&random);
		held[count++] = slot_index;
	}
	while (count)
		free_slot(&table, held[--count]);
	return 0;
}

static void *admit_and_sweep(void *number)
{
	struct dwell_counters counters = {0};
	__u64 random = (__u64)number;

	for (__u32 step = 0; step < steps; step++) {
		/* 3 ms per step of any thread: the clock runs for the others too */
		struct dwell_clock clock = {__sync_add_and_fetch(&now_ns, 3000000)};
		struct dwell_table table = {&slots.program.table, &counters, &clock, &slots};
		struct dwell_packet packet = {.proto = 6, .may_open = 1, .lb = {.real = 1, .vip = 1}};

		if (!(next_random(&random) % 8)) {
			dwell_bucket_sweep(&table, next_random(&random) % BUCKETS, DWELL_CLOSE_IDLE, 0);
			continue;
		}
		packet.key.a.low = next_random(&random) % (4 * SLOTS);
		packet.key.b.low = 1ULL << 40;
		packet.lb.measured = packet.key.a.low & 1;
		packet.hash = dwell_key_hash(&packet.key, packet.proto, 7);
		dwell_flow_of(&table, &packet);
	}
	return 0;
}

/* Checks that each state belongs to one slot with a flow, or is free. */
static void audit_states(const __u32 *flows)
{
	__u32 found[STATES] = {0}, state;

	for (__u32 i = 0; i < SLOTS; i++) {
		state = dwell_slot_state(&slot[i].slot);
		if (state && !flows[i])
			fail("is free and has a state", i);
		if (state)
			found[(state - 1) % STATES]++;
	}
	for (__u32 i = 0; i <= STATES; i++) {
		state = dwell_pool_take(&slots, &slots.state_pool, STATES, dwell_state_next);
		if (state == DWELL_NO_SLOT)
			break;
		found[state % STATES]++;
	}
	for (state = 0; state < STATES; state++)
		if (found[state] != 1)
			fail(found[state] ? "is a state of two" : "is a state that is lost", state);
}

/* Checks that each slot belongs to one flow, or is free. */
static void audit(void)
{
	struct dwell_table table = {.embedder = &slots};
	struct dwell_slot_bucket own = {0};
	__u32 found[SLOTS] = {0}, slot_index;

	for (__u32 index = 0; index < BUCKETS; index++)
		for (__u32 way = 0; way < DWELL_WAYS; way++)
			if (buckets[index].bucket.tags >> 16 * way & 0xffff)
				found[buckets[index].slot_index[way] % SLOTS]++;
	audit_states(found);
	for (__u32 i = 0; i <= SLOTS; i++) {
		slot_index = dwell_slot_allocate(&table, &own.bucket, 0);
		if (slot_index == DWELL_NO_SLOT)
			break;
		found[slot_index % SLOTS]++;
	}
	for (slot_index = 0; slot_index < SLOTS; slot_index++)
		if (found[slot_index] != 1)
			fail(found[slot_index] ? "is in two ways" : "is lost", slot_index);
}

int main(int count, char **arguments)
{
	void *(*run)(void *) = allocate_and_free;
	pthread_t thread[64];
	__u32 threads;

	if (count != 4)
		return 2;
	if (!strcmp(arguments[1], "table"))
		run = admit_and_sweep;
	threads = atoi(arguments[2]);
	steps = atoi(arguments[3]);
	slots.buckets = buckets;
	slots.slots = slot;
	slots.aliases = alias;
	slots.program.table.slots = SLOTS;
	slots.states = STATES;
	slots.program.table.bucket_mask = BUCKETS - 1;
	slots.program.table.idle_timeout_ns = 200000000;
	for (__u64 i = 0; i < threads; i++)
		pthread_create(&thread[i], 0, run, (void *)(i + 1));
	for (__u32 i = 0; i < threads; i++)
		pthread_join(thread[i], 0);
	audit();
	return !!wrong;
}
