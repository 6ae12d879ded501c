// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
// Connects to ADDRESS:PORT, writes BYTES, then reads what comes until its end, with a pause of MS before each read.
// Says how much it read. Usage: talk ADDRESS PORT BYTES MS

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char buffer[1 << 16];

static int fail(const char *what)
{
	perror(what);
	return 1;
}

int main(int count, char **arguments)
{
	if (count != 5)
		return 2;
	struct sockaddr_in other = {
		.sin_family = AF_INET,
		.sin_port = htons((unsigned short)atoi(arguments[2])),
	};
	if (inet_pton(AF_INET, arguments[1], &other.sin_addr) != 1)
		return 2;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&other, sizeof(other)) < 0)
		return fail("connect");
	for (long left = atol(arguments[3]); left > 0;) {
		size_t most = (size_t)left < sizeof(buffer) ? (size_t)left : sizeof(buffer);
		ssize_t written = write(fd, buffer, most);
		if (written < 0)
			return fail("write");
		left -= written;
	}
	shutdown(fd, SHUT_WR);
	long all = 0;
	for (;;) {
		usleep((useconds_t)atoi(arguments[4]) * 1000);
		ssize_t length = read(fd, buffer, sizeof(buffer));
		if (length < 0)
			return fail("read");
		if (length == 0)
			break;
		all += length;
	}
	printf("%ld\n", all);
	return 0;
}
