/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The array of the program that calls this one. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} chain SEC(".maps");
