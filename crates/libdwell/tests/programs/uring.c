// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Bytes that are sent by io_uring. The program reports it if the kernel has no io_uring. */
#include "scene.h"
#include <linux/io_uring.h>
#include <sys/mman.h>

int main(void)
{
	struct io_uring_params params;
	struct io_uring_sqe *entries;
	static char bytes[30000];
	int client, server, ring;
	uint32_t *tail, *array;
	char *queue;

	memset(&params, 0, sizeof(params));
	ring = syscall(SYS_io_uring_setup, 4, &params);
	if (ring < 0) {
		printf("unavailable %d\n", errno);
		return 0;
	}
	queue = mmap(NULL, params.sq_off.array + params.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		     IORING_OFF_SQ_RING);
	entries = mmap(NULL, params.sq_entries * sizeof(*entries), PROT_READ | PROT_WRITE, MAP_SHARED, ring,
		       IORING_OFF_SQES);
	must(queue != MAP_FAILED && entries != MAP_FAILED);
	tail = (uint32_t *)(queue + params.sq_off.tail);
	array = (uint32_t *)(queue + params.sq_off.array);
	pair(&client, &server);
	say_socket("sender", client);
	pause_ms(50);
	memset(entries, 0, sizeof(*entries));
	entries->opcode = IORING_OP_SEND;
	entries->fd = client;
	entries->addr = (uintptr_t)bytes;
	entries->len = sizeof(bytes);
	array[0] = 0;
	__atomic_store_n(tail, 1, __ATOMIC_RELEASE);
	must(syscall(SYS_io_uring_enter, ring, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) == 1);
	read_all(server, sizeof(bytes));
	printf("total %zu\n", sizeof(bytes));
	fflush(stdout);
	pause_ms(300);
	return 0;
}
