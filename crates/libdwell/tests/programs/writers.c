// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Threads that share a connection and no lock: each message is one call, whose bytes the kernel keeps together while there is room
 * in the send buffer.
 */
#include "scene.h"
#include <sys/mman.h>

#define WRITERS 4
#define LONGEST 9000

static int client, server;
static double end_s;

/* Sends a message by one of several calls. Returns the number of bytes that were taken. */
static ssize_t send_by(unsigned int call, int file, char *message, size_t length)
{
	struct iovec part = {message, length};
	struct mmsghdr messages = {.msg_hdr = {.msg_iov = &part, .msg_iovlen = 1}};
	off_t begin = lseek(file, 0, SEEK_END);

	switch (call % 4) {
	case 0: /* which the kernel sends from the file's memory, so that each has a place of its own there */
		must(pwrite(file, message, length, begin) == (ssize_t)length);
		return sendfile(client, file, &begin, length);
	case 1:
		must(sendmmsg(client, &messages, 1, 0) == 1);
		return messages.msg_len;
	case 2: /* a flag with which no call is cut */
		return send(client, message, length, MSG_DONTROUTE);
	default:
		return write(client, message, length);
	}
}

static void *writer(void *number)
{
	char message[LONGEST];
	unsigned int seed = 1 + *(int *)number;
	int file = memfd_create("message", 0);

	must(file >= 0);
	memset(message, 'a' + *(int *)number, sizeof(message));
	while (now_s() < end_s) {
		/* Most are short. */
		uint32_t most = rand_r(&seed) % 4 ? 300 : LONGEST;
		uint32_t length = 8 + rand_r(&seed) % (most - 8);

		memcpy(message, &length, sizeof(length));
		must(send_by(rand_r(&seed), file, message, length) == (ssize_t)length);
		usleep(rand_r(&seed) % 500);
	}
	return NULL;
}

static void *reader(void *unused)
{
	static char message[LONGEST];
	unsigned long messages = 0;
	uint32_t length;

	(void)unused;
	while (recv(server, &length, sizeof(length), MSG_WAITALL) == sizeof(length)) {
		must(length >= 8 && length <= LONGEST);
		must(recv(server, message, length - sizeof(length), MSG_WAITALL) == (ssize_t)(length - sizeof(length)));
		for (uint32_t i = 0; i < length - sizeof(length); i++)
			must(message[i] == message[0]);
		messages++;
	}
	printf("messages %lu\n", messages);
	return NULL;
}

int main(void)
{
	pthread_t writers[WRITERS], from;
	int numbers[WRITERS], bytes = 8 << 20;

	pair(&client, &server);
	must(setsockopt(server, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0);
	say_socket("sender", client);
	end_s = now_s() + 1.5;
	must(pthread_create(&from, NULL, reader, NULL) == 0);
	for (int i = 0; i < WRITERS; i++) {
		numbers[i] = i;
		must(pthread_create(&writers[i], NULL, writer, &numbers[i]) == 0);
	}
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	shutdown(client, SHUT_WR);
	pthread_join(from, NULL);
	return 0;
}
