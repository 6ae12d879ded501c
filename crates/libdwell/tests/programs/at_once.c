// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Clients: one writes as soon as it is connected, one never writes, and one asks twice whether it is connected. */
#include "scene.h"

int main(void)
{
	int sender, receiver, silent, other, twice, third, from;
	struct sockaddr_in at;

	pair(&sender, &receiver);
	write_all(sender, 40000);
	read_all(receiver, 40000);
	pair(&silent, &other);
	from = listener(&at);
	twice = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	must(connect(twice, (struct sockaddr *)&at, sizeof(at)) == -1 && errno == EINPROGRESS);
	third = accept(from, NULL, NULL);
	must(third >= 0 && connect(twice, (struct sockaddr *)&at, sizeof(at)) == 0);
	write_all(twice, 3000);
	read_all(third, 3000);
	say_socket("sender", sender);
	say_socket("receiver", receiver);
	say_socket("silent", silent);
	say_socket("twice", twice);
	pause_ms(600);
	return 0;
}
