/*
 * log: lines for people.  One line an event, written where it is handled, with
 * the object, the peer and the reason.  Per-I/O events are counters (stats.h).
 *
 * A .c file names its room before including this header:
 *	#define LOG_ROOM LOG_LSOM
 */
#ifndef BASALT_BASE_LOG_H
#define BASALT_BASE_LOG_H

#include <stdbool.h>

enum log_level { LOG_ERROR_L, LOG_WARN_L, LOG_INFO_L, LOG_DEBUG_L };

#define LOG_ROOM_MAP(X)                                                        \
	X(LOG_BASE, "base")                                                    \
	X(LOG_LSOM, "lsom")                                                    \
	X(LOG_RDT, "rdt")                                                      \
	X(LOG_CMMDS, "cmmds")                                                  \
	X(LOG_DOM, "dom")                                                      \
	X(LOG_ISCSI, "iscsi")                                                  \
	X(LOG_ISER, "iser")                                                    \
	X(LOG_NODE, "node")

enum log_room {
#define X(id, name) id,
	LOG_ROOM_MAP(X)
#undef X
		LOG_ROOMS
};

/*
 * Lines go to standard error; thread safe.  Where nobody reads them they are lost,
 * and it is told how many: it takes no longer than a tenth of a second.
 */
void log_write(enum log_room room, enum log_level level, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
bool log_enabled(enum log_room room, enum log_level level);

/*
 * Where standard error is the journal's, lines begin with their priority as of
 * sd-daemon(3) from then on.  Before other threads are there.
 */
void log_open(void);

/* Returns 0, or -EINVAL for an unknown room or level.  @room "all" is all. */
int log_level_set(const char *room, const char *level);
const char *log_level_get(enum log_room room);
const char *log_room_name(enum log_room room);

#define LOG_AT(level, ...)                                                     \
	do {                                                                   \
		if (log_enabled(LOG_ROOM, (level)))                            \
			log_write(LOG_ROOM, (level), __VA_ARGS__);             \
	} while (0)

#define log_error(...) LOG_AT(LOG_ERROR_L, __VA_ARGS__)
#define log_warn(...) LOG_AT(LOG_WARN_L, __VA_ARGS__)
#define log_info(...) LOG_AT(LOG_INFO_L, __VA_ARGS__)
#define log_debug(...) LOG_AT(LOG_DEBUG_L, __VA_ARGS__)

/*
 * For events a peer can repeat at will: true at most once a second for each
 * @limit.
 */
struct log_limit {
	unsigned long long next_ns;
};
bool log_allowed(struct log_limit *limit, unsigned long long now_ns);

#endif
