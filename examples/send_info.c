// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * Sends frames over TCP, and leaves some out while those before wait in the send buffer of this host.
 *
 *	cc send_info.c -ldwell -o send_info
 *	send_info ADDRESS PORT
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dwell.h>

#define FRAMES 300
#define LONGEST_NS 100000000 /* a frame that would wait longer is of no use */

int main(int argc, char **argv)
{
	struct sockaddr_in to = {.sin_family = AF_INET};
	struct dwell_info info = DWELL_INFO;
	static char frame[40000];
	int fd = socket(AF_INET, SOCK_STREAM, 0), sent = 0, left_out = 0;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &to.sin_addr) != 1) {
		fprintf(stderr, "usage: %s ADDRESS PORT\n", argv[0]);
		return 2;
	}
	to.sin_port = htons((uint16_t)atoi(argv[2]));
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) || dwell_init(NULL)) {
		fprintf(stderr, "%s port %s: %s\n", argv[1], argv[2], strerror(errno));
		return 1;
	}
	for (int i = 0; i < FRAMES; i++) {
		if (dwell_get(fd, &info) == 0 && (info.valid & DWELL_SENDER_WAITING) &&
		    info.sender_waiting_ns > LONGEST_NS) {
			left_out++;
		} else {
			if (dwell_send(fd, frame, sizeof(frame), 0, &info) < 0)
				break;
			sent++;
		}
		usleep(33000);
	}
	printf("%d frames sent, %d left out\n", sent, left_out);
	if (info.valid & DWELL_SENDER_DELAY)
		printf("sender delay %" PRIu64 " us\n", info.sender_delay_ns / 1000);
	if (info.valid & DWELL_RTT)
		printf("round trip %" PRIu64 " us\n", info.rtt_ns / 1000);
	dwell_close();
	return 0;
}
