/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * dwell.h: how long the data of TCP connections waits in this host's buffers, for the program that has the
 * connections. Link with -ldwell.
 *
 *	struct dwell_info info = DWELL_INFO;
 *
 *	dwell_init(NULL);
 *	if (dwell_send(fd, frame, length, 0, &info) >= 0 && (info.valid & DWELL_SENDER_DELAY))
 *		adapt(info.sender_delay_ns);
 *
 * A thread of the library looks at each connection that any of these calls was given, every 10 ms or as configured.
 * What a call tells is what the last look showed. All calls may be made from any thread, none from a signal handler.
 *
 * A forked child has no such thread: there calls that carry data do what they wrap and tell nothing, until the child
 * calls dwell_close() and dwell_init().
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
#define DWELL_PAPER 1 /* from segments and their greatest size, for old kernels */

/* dwell_config.controller */
#define DWELL_NO_CONTROLLER 0 /* nothing is set; the default */
#define DWELL_LOWAT 1         /* TCP_NOTSENT_LOWAT follows the delivery rate */
#define DWELL_ELEMENT 2       /* dwell_send() and its like sleep after they have written */

/* What is to be done. Zeroes are defaults. */
struct dwell_config {
	size_t size;              /* sizeof(struct dwell_config): what is beyond is 0 */
	uint64_t poll_ns;         /* how often connections are looked at; 10 ms */
	uint64_t target_ns;       /* delay in the send buffer that a controller aims at; 25 ms */
	const char *congestion;   /* congestion control that connections get; NULL: as they are */
	uint32_t estimator;       /* DWELL_EXACT or DWELL_PAPER */
	uint32_t controller;      /* DWELL_NO_CONTROLLER, ... */
	uint32_t budget_permille; /* the thread takes at most so much of a core; 20 */
	uint32_t wireless;        /* 1: DWELL_ELEMENT sets SO_SNDBUF too */
};

#define DWELL_CONFIG                                                                                                   \
	{                                                                                                              \
		sizeof(struct dwell_config), 0, 0, NULL, 0, 0, 0, 0                                                    \
	}

/* dwell_info.valid: what is known. Other fields are 0. */
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

/* What is known of a connection by the last look at it. */
struct dwell_info {
	size_t size;                /* sizeof(struct dwell_info), set by the caller: no more than that is written */
	uint64_t valid;             /* which of the following are known */
	uint64_t time_ns;           /* when it was looked at, on CLOCK_MONOTONIC */
	uint64_t sender_delay_ns;   /* how long the bytes that left last had waited in the send buffer */
	uint64_t sender_waiting_ns; /* for how long the oldest byte that has not left has been waiting */
	uint64_t receiver_delay_ns; /* how long the bytes read last had waited in the receive buffer */
	uint64_t jitter_ns;         /* mean deviation of the sender delay */
	uint64_t throughput_bps;    /* bits a second that the other end acknowledged, over a second */
	uint64_t receive_throughput_bps; /* bits a second that came in order, over a second */
	uint64_t rtt_ns;                 /* smoothed round-trip time */
	uint64_t min_rtt_ns;             /* least round-trip time */
	uint32_t cwnd;                   /* congestion window, in segments */
	uint32_t ssthresh;               /* slow-start threshold, in segments; not known before the first loss */
	uint32_t notsent_bytes;          /* written, and not left */
	uint32_t retransmissions;        /* segments that were sent again */
};

#define DWELL_INFO                                                                                                     \
	{                                                                                                              \
		sizeof(struct dwell_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                    \
	}

/*
 * Begins. NULL: defaults.
 *
 * 0, or -1 and errno: EINVAL if the configuration makes no sense, EALREADY if it has begun, EAGAIN or ENOMEM if there
 * can be no thread or memory.
 */
int dwell_init(const struct dwell_config *config);

/*
 * Ends: the thread goes. What was set of connections stays. dwell_wait() ends with ENOTCONN where it is under way. In a
 * forked child it forgets what the parent began, whatever the parent's threads did meanwhile.
 */
void dwell_close(void);

/*
 * The calls of these names, with their arguments, results and errno, and what is known of the connection afterwards.
 * info may be NULL. It has no valid fields where nothing is known, and before dwell_init().
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
 * What is known of a connection, which is watched from the first call on.
 *
 * 0, or -1 and errno: EINVAL before dwell_init(), ENOTCONN if fd is no TCP connection that is open, ENOSPC if too many
 * are watched.
 */
int dwell_get(int fd, struct dwell_info *info);

/*
 * Waits until the sender delay of a connection, or for how long its oldest byte has been waiting, or the jitter of
 * either passes threshold_ns, of bytes that leave after the call or wait; at most timeout_ms milliseconds, for ever if that is negative.
 *
 * 1 if it has passed, 0 after the timeout, or -1 and errno as dwell_get(): ENOTCONN too when the connection ends.
 */
int dwell_wait(int fd, uint64_t threshold_ns, int timeout_ms);

/* What a controller wants to be set. 0: as it is. */
struct dwell_setting {
	uint32_t notsent_lowat; /* TCP_NOTSENT_LOWAT, in bytes */
	uint32_t send_buffer;   /* SO_SNDBUF, in bytes */
};

/* Called in the library's thread after each look. It must be quick, and may call no other dwell_ function. */
typedef void (*dwell_controller)(const struct dwell_info *info, struct dwell_setting *setting, void *user);

/*
 * Has controller decide what is set of a connection, instead of what the configuration says, as long as the program
 * does not set the same itself. user is handed on, and must stay as long as the connection is open.
 *
 * 0, or -1 and errno as dwell_get().
 */
int dwell_control(int fd, dwell_controller controller, void *user);

#ifdef __cplusplus
}
#endif

#endif
