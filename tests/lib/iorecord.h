/* iorecord: what base/record.c wrote, read back for a replay. */
#ifndef BASALT_TESTS_IORECORD_H
#define BASALT_TESTS_IORECORD_H

#include "base/kv.h"
#include "base/record.h"

#include <stdbool.h>
#include <stddef.h>

struct io_event {
	uint32_t kind, flags;
	uint64_t id, offset, len;
	const uint8_t *data; /* into the record */
	uint64_t end; /* bytes of the record up to here */
	/*
	 * Of a write or a store's batch: from which event on it is durable,
	 * SIZE_MAX if it never is.  Until then a power cut may keep it or lose
	 * it, and tear a write.
	 */
	size_t safe_at;
	size_t done_at; /* its completion; SIZE_MAX: none, or it failed */
};

struct io_record {
	struct io_event *events;
	size_t count;
	uint64_t bytes;
	/* private */
	void *map;
};

/*
 * Events of the device whose path ends with @suffix, and of the one store that
 * was recorded.  With @ignore_durable the flag of the writes is taken as lost.
 * Returns 0, -errno, or -EPROTO for what is no record of one store; one cut in
 * its last event (a killed daemon) is fine.
 */
int io_record_open(const char *path, const char *suffix, bool ignore_durable,
		   struct io_record *out);

/* The batch of a RECORD_STORE_BATCH, for kv_batch_fini().  0 or -EPROTO. */
int io_event_batch(const struct io_event *event, struct kv_batch *out);

void io_record_close(struct io_record *record);

#endif
