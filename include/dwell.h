/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dwell.h: measures how long the data of TCP connections waits in the buffers of this host, for the program that owns
 * the connections. Link with -ldwell.
 *
 *	struct dwell_info info = DWELL_INFO;
 *
 *	dwell_init(NULL);
 *	if (dwell_send(fd, frame, length, 0, &info) >= 0 && (info.valid & DWELL_SENDER_DELAY))
 *		adapt(info.sender_delay_ns);
 *
 * A thread of the library polls each connection that was passed to any of these functions, every 10 ms or as
 * configured. All functions report the figures of the last poll. They may be called from any thread, but not from a
 * signal handler.
 *
 * A forked child has no such thread: there the functions that carry data do what they wrap and report nothing, until the
 * child calls dwell_close() and dwell_init().
 */
#ifndef DWELL_H
#define DWELL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* dwell_config.estimator */
#define DWELL_EXACT 0 /* from the kernel's counts of bytes; the default */
#define DWELL_PAPER 1 /* from segments and their maximum size, and the calls of this interface (ELEMENT) */

/* dwell_config.controller */
#define DWELL_NO_CONTROLLER 0 /* sets nothing; the default */
#define DWELL_LOWAT 1         /* TCP_NOTSENT_LOWAT follows the delivery rate */
#define DWELL_ELEMENT 2       /* dwell_send() and the other writing calls sleep afterwards; with DWELL_PAPER */

/* Configuration. Zeroes stand for the defaults. */
struct dwell_config {
	size_t size;              /* sizeof(struct dwell_config); fields beyond it are 0 */
	uint64_t poll_ns;         /* time between two polls of a connection; default 10 ms */
	uint64_t target_ns;       /* target of a controller for the delay in the send buffer; default 25 ms */
	const char *congestion;   /* congestion control for all connections; NULL leaves it unchanged */
	uint32_t estimator;       /* DWELL_EXACT or DWELL_PAPER */
	uint32_t controller;      /* DWELL_NO_CONTROLLER, DWELL_LOWAT or DWELL_ELEMENT */
	uint32_t budget_permille; /* largest share of a core that the thread uses; default 20 */
	uint32_t wireless;        /* 1: DWELL_ELEMENT also sets SO_SNDBUF */
};

#define DWELL_CONFIG                                                                                                   \
	{                                                                                                              \
		sizeof(struct dwell_config), 0, 0, NULL, 0, 0, 0, 0                                                    \
	}

/* Bits of dwell_info.valid: the fields that are known. Unknown fields are 0. */
#define DWELL_TIME (1ULL << 0)
#define DWELL_SENDER_DELAY (1ULL << 1)
#define DWELL_SENDER_WAITING (1ULL << 2)
#define DWELL_RECEIVER_DELAY (1ULL << 3)
#define DWELL_JITTER (1ULL << 4)
#define DWELL_THROUGHPUT (1ULL << 5)
#define DWELL_RECEIVE_THROUGHPUT (1ULL << 6)
#define DWELL_RTT (1ULL << 7)
#define DWELL_MIN_RTT (1ULL << 8)
#define DWELL_CWND (1ULL << 9)
#define DWELL_SSTHRESH (1ULL << 10)
#define DWELL_NOTSENT (1ULL << 11)
#define DWELL_RETRANSMISSIONS (1ULL << 12)

/* Figures of a connection, as of its last poll. */
struct dwell_info {
	size_t size;                     /* sizeof(struct dwell_info), set by the caller: no more bytes are written */
	uint64_t valid;                  /* which of the following fields are known */
	uint64_t time_ns;                /* time of the poll, on CLOCK_MONOTONIC */
	uint64_t sender_delay_ns;        /* wait in the send buffer of the bytes that left most recently */
	uint64_t sender_waiting_ns;      /* wait so far of the oldest byte in the send buffer */
	uint64_t receiver_delay_ns;      /* wait in the receive buffer of the bytes that were read most recently */
	uint64_t jitter_ns;              /* mean deviation of the sender delay */
	uint64_t throughput_bps;         /* bits per second that the other end acknowledged, over the last second */
	uint64_t receive_throughput_bps; /* bits per second that arrived in order, over the last second */
	uint64_t rtt_ns;                 /* smoothed round-trip time */
	uint64_t min_rtt_ns;             /* minimum round-trip time */
	uint32_t cwnd;                   /* congestion window, in segments */
	uint32_t ssthresh;               /* slow-start threshold, in segments; unknown before the first loss */
	uint32_t notsent_bytes;          /* bytes that were written and have not left */
	uint32_t retransmissions;        /* number of retransmitted segments */
};

#define DWELL_INFO                                                                                                     \
	{                                                                                                              \
		sizeof(struct dwell_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                    \
	}

/*
 * Starts the library's thread. NULL stands for the defaults.
 *
 * Returns 0, or -1 and errno: EINVAL if the configuration is invalid, EALREADY if the library was started before, EAGAIN
 * or ENOMEM if the system has no thread or memory left.
 */
int dwell_init(const struct dwell_config *config);

/*
 * Ends the library's thread. Options that were set on connections remain. A dwell_wait() in progress returns with
 * ENOTCONN. In a forked child it discards what the parent started, whatever the parent's threads were doing.
 */
void dwell_close(void);

/*
 * These functions make the calls of the same names, with their arguments, results and errno, and then report the figures
 * of the connection. info may be NULL. It has no valid fields if nothing is known, or before dwell_init().
 */
ssize_t dwell_send(int fd, const void *bytes, size_t count, int flags, struct dwell_info *info);
ssize_t dwell_sendmsg(int fd, const struct msghdr *message, int flags, struct dwell_info *info);
ssize_t dwell_write(int fd, const void *bytes, size_t count, struct dwell_info *info);
ssize_t dwell_writev(int fd, const struct iovec *parts, int count, struct dwell_info *info);
ssize_t dwell_recv(int fd, void *bytes, size_t count, int flags, struct dwell_info *info);
ssize_t dwell_recvmsg(int fd, struct msghdr *message, int flags, struct dwell_info *info);
ssize_t dwell_read(int fd, void *bytes, size_t count, struct dwell_info *info);
ssize_t dwell_readv(int fd, const struct iovec *parts, int count, struct dwell_info *info);

/*
 * Reports the figures of a connection, which is watched from the first call on.
 *
 * Returns 0, or -1 and errno: EINVAL before dwell_init(), ENOTCONN if fd is not an open TCP connection, ENOSPC if too
 * many connections are watched.
 */
int dwell_get(int fd, struct dwell_info *info);

/*
 * Waits until the sender delay of a connection, the wait of its oldest unsent byte, or the jitter exceeds threshold_ns,
 * counting only bytes that leave after the call or still wait. It waits at most timeout_ms milliseconds, or forever if
 * that is negative.
 *
 * Returns 1 if the threshold was exceeded, 0 after the timeout, or -1 and errno as dwell_get() does, with ENOTCONN also
 * when the connection ends.
 */
int dwell_wait(int fd, uint64_t threshold_ns, int timeout_ms);

/* Options that a controller sets. 0 leaves an option unchanged. */
struct dwell_setting {
	uint32_t notsent_lowat; /* TCP_NOTSENT_LOWAT, in bytes */
	uint32_t send_buffer;   /* SO_SNDBUF, in bytes */
};

/* Called in the library's thread after each poll. It must be quick and must not call a dwell_ function. */
typedef void (*dwell_controller)(const struct dwell_info *info, struct dwell_setting *setting, void *user);

/*
 * Lets controller decide the options of a connection, instead of the configuration, unless the program sets the same
 * options itself. user is passed to controller, and must stay valid as long as the connection is open.
 *
 * Returns 0, or -1 and errno as dwell_get() does.
 */
int dwell_control(int fd, dwell_controller controller, void *user);

#ifdef __cplusplus
}
#endif

#endif
