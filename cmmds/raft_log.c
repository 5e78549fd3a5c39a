/*
 * raft_log: the log in memory, [first, last], a window that grows at its end,
 * is truncated there, and is trimmed at its beginning after snapshots, which may
 * drop more than can be freed in one turn.
 */
#include "cmmds/raft_shell_int.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>

uint64_t shell__log_last(const struct shell_log *log)
{
	return log->first + log->count - 1;
}

struct log_entry *shell__log_at(struct shell_log *log, uint64_t index)
{
	if (index < log->first || index - log->first >= log->count)
		return NULL;
	return &log->at[log->head + (size_t)(index - log->first)];
}

/* Takes the entry's data. */
void shell__log_push(struct shell_log *log, const struct log_entry *entry)
{
	if (log->head + log->count == log->room) {
		shell__log_free_some(log, UINT_MAX);
		if (log->head > 0 && log->head >= log->room / 2) {
			memmove(log->at, log->at + log->head,
				log->count * sizeof(*log->at));
		} else {
			struct log_entry *at;

			log->room = MAX(log->room * 2, (size_t)64);
			at = cmmds__alloc(log->room * sizeof(*at));
			if (log->count > 0)
				memcpy(at, log->at + log->head,
				       log->count * sizeof(*at));
			free(log->at);
			log->at = at;
		}
		log->head = 0;
	}
	log->at[log->head + log->count++] = *entry;
	log->bytes += entry->len;
}

void shell__log_truncate(struct shell_log *log, uint64_t from)
{
	assert(from >= log->first);
	while (log->count > 0 && shell__log_last(log) >= from) {
		struct log_entry *e = &log->at[log->head + --log->count];

		log->bytes -= e->len;
		free(e->data);
	}
}

void shell__log_drop_before(struct shell_log *log, uint64_t first)
{
	while (log->count > 0 && log->first < first) {
		log->bytes -= log->at[log->head++].len;
		log->dead++;
		log->count--;
		log->first++;
	}
}

bool shell__log_free_some(struct shell_log *log, unsigned max)
{
	for (; log->dead > 0 && max > 0; max--)
		free(log->at[log->head - log->dead--].data);
	return log->dead == 0;
}

void shell__log_reset(struct shell_log *log, uint64_t first)
{
	if (log->count > 0)
		shell__log_truncate(log, log->first);
	shell__log_free_some(log, UINT_MAX);
	free(log->at);
	*log = (struct shell_log){ .first = first };
}
