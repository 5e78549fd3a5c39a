/*
 * support: what `basalt support` is made of.
 *
 *	support.c         the command: what is asked of basaltd, and what came of it
 *	support_host.c    what the machine says, each within a time
 *	support_bundle.c  the file that it goes to
 */
#ifndef BASALT_NODE_CLI_SUPPORT_H
#define BASALT_NODE_CLI_SUPPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct support;

/*
 * One file of the bundle.  @what: where it is from.  @data is NULL where nothing
 * came; @error says why, or what it lacks, or is "".
 */
void support__add(struct support *s, const char *name, const char *what,
		  const void *data, size_t len, const char *error);
/* It may take a moment: who looks on is told. */
void support__progress(const char *what);
/* Is there any use in more of it? */
bool support__failed(const struct support *s);

/* ---- support_host.c ---- */

/* Of the machine, and of basaltd's process: @pid is 0 where it is not known. */
void support__host(struct support *s, pid_t pid);
/* The end of basaltd's log: of @path, or where it is found. */
void support__log(struct support *s, pid_t pid, const char *path,
		  const char *socket);
void support__config(struct support *s, const char *path);
struct cli_call;
/* `basalt config show`, by the socket of @call. */
void support__config_show(struct support *s, const struct cli_call *call);

/* ---- support_bundle.c ---- */

/*
 * Make @path, which must not be there, with mode 0600: a tar archive, compressed,
 * whose files are in @folder.  It is written beside its place and renamed when it
 * is whole.  0 or -errno.
 */
struct bundle;
int bundle_open(const char *path, const char *folder, struct bundle **out);
/* The first error stays, and the rest is not written. */
void bundle_add(struct bundle *b, const char *name, const void *data,
		size_t len);
int bundle_error(const struct bundle *b);
/* 0 and its size, or -errno, and nothing of it is left. */
int bundle_close(struct bundle *b, size_t *bytes);

#endif
