/* record: the writer of base/record.h; a killed process leaves whole events. */
#include "base/record.h"
#include "base/shard.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static FILE *file; /* under lock, once opened */
static uint64_t next_id = 1;

static void record_open(void)
{
	const char *path = getenv("BASALT_IO_RECORD");

	if (path != NULL && *path != '\0')
		file = fopen(path, "wbe");
	if (file != NULL)
		setvbuf(file, NULL, _IOFBF, 1 << 20);
}

bool record_on(void)
{
	pthread_once(&once, record_open);
	return file != NULL;
}

uint64_t record_event(enum record_kind kind, uint32_t dev, uint64_t id,
		      uint64_t offset, uint32_t flags, const struct iovec *iov,
		      unsigned n)
{
	struct record_head head = { .magic = RECORD_MAGIC,
				    .kind = kind,
				    .dev = dev,
				    .flags = flags,
				    .offset = offset };

	for (unsigned i = 0; i < n; i++)
		head.len += iov[i].iov_len;
	pthread_mutex_lock(&lock);
	head.id = id != 0 ? id : next_id++;
	fwrite(&head, sizeof(head), 1, file);
	for (unsigned i = 0; i < n; i++)
		fwrite(iov[i].iov_base, 1, iov[i].iov_len, file);
	/* A killed daemon leaves a log that ends at an event, not in one. */
	if (kind == RECORD_NOTE || kind == RECORD_DONE)
		fflush(file);
	pthread_mutex_unlock(&lock);
	return head.id;
}

void shard_record_note(struct env *env, const char *kind, const void *data,
		       size_t len)
{
	struct iovec iov[2] = { { (void *)kind, strlen(kind) + 1 },
				{ (void *)data, len } };

	if (record_on())
		record_event(RECORD_NOTE, 0, 0, 0, 0, iov, 2);
}
