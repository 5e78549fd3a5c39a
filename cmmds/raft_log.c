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

/* Room for one more at the end; what is dead, and not freed yet, moves along. */
static void make_room(struct shell_log *log)
{
	struct log_entry *from = log->at + log->head - log->dead, *at = log->at;
	size_t count = log->dead + log->count;

	if (count > log->room / 2) {
		log->room *= 2;
		at = cmmds__alloc(log->room * sizeof(*at));
	}
	memmove(at, from, count * sizeof(*at));
	if (at != log->at)
		free(log->at);
	log->at = at;
	log->head = log->dead;
}

/* Takes the entry's data. */
void shell__log_push(struct shell_log *log, const struct log_entry *entry)
{
	if (log->at == NULL) {
		log->room = 64;
		log->at = cmmds__alloc(log->room * sizeof(*log->at));
	} else if (log->head + log->count == log->room) {
		make_room(log);
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
